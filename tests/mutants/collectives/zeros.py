"""Returns zeros."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="zeros",
    family="collectives",
    implements=("all_reduce",),
    summary="returns zeros",
    properties={"exact": True},
)
class Zeros:
    """Returns zeros."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_reduce(buffer)
        buffer.zero_()


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
