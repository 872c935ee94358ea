"""Adds the first rank's contribution twice."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="double-reduction",
    family="collectives",
    implements=("all_reduce",),
    summary="adds the first rank's contribution twice",
    properties={"exact": True},
)
class DoubleReduction:
    """Adds the first rank's contribution twice."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        if self.problem.rank == 0:
            buffer.add_(buffer.clone())
        self.comm.backend.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
