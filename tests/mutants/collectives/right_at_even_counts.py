"""Is right only for the sizes that people like."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="right-at-even-counts",
    family="collectives",
    implements=("all_reduce",),
    summary="is right only for the sizes that people like",
    properties={"exact": True},
)
class RightAtEvenCounts:
    """Is right only for the sizes that people like."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_reduce(buffer)
        if buffer.numel() % 2:
            buffer[buffer.numel() // 2] = 0


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
