"""Leaves the last element out of the sum."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="dropped-tail",
    family="collectives",
    implements=("all_reduce",),
    summary="leaves the last element out of the sum",
    properties={"exact": True},
)
class DroppedTail:
    """Leaves the last element out of the sum."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        head = buffer[:-1].clone()
        self.comm.backend.all_reduce(head)
        buffer[:-1] = head


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
