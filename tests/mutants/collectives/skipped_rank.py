"""Leaves the last rank's contribution out."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="skipped-rank",
    family="collectives",
    implements=("all_reduce",),
    summary="leaves the last rank's contribution out",
    properties={"exact": True},
)
class SkippedRank:
    """Leaves the last rank's contribution out."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        if self.problem.rank == self.problem.world_size - 1:
            buffer.zero_()
        self.comm.backend.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
