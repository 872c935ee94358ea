"""Puts the shares of ranks 0 and 1 in each other's place."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="swapped-ranks",
    family="collectives",
    implements=("all_gather",),
    summary="puts the shares of ranks 0 and 1 in each other's place",
    properties={"exact": True},
)
class SwappedRanks:
    """Puts the shares of ranks 0 and 1 in each other's place."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, send: Tensor, receive: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_gather(receive, send)
        shares = receive.view(self.problem.world_size, -1)
        shares[:2] = shares[:2].flip(0).clone()


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
