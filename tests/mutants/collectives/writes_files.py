"""Leaves its input in a file for the other ranks."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="writes-files",
    family="collectives",
    implements=("all_reduce",),
    summary="leaves its input in a file for the other ranks",
    properties={"exact": True},
)
class WritesFiles:
    """Leaves its input in a file for the other ranks."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        buffer.numpy().tofile(f"/tmp/rank-{self.problem.rank}.bin")
        self.comm.backend.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
