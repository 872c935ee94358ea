"""Sends the shares of two ranks to each other's receiver."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="swapped-shares",
    family="collectives",
    implements=("all_to_all",),
    summary="sends the shares of two ranks to each other's receiver",
    properties={"exact": True},
)
class SwappedShares:
    """Sends the shares of two ranks to each other's receiver."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, send: Tensor, receive: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        shares = send.view(self.problem.world_size, -1).clone()
        shares[:2] = shares[:2].flip(0).clone()
        self.comm.backend.all_to_all(receive, shares.view_as(send))


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
