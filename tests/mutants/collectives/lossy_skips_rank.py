"""Calls itself lossy, leaves a rank out, and scales the rest to make up for it."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="lossy-skips-rank",
    family="collectives",
    implements=("all_reduce",),
    summary="calls itself lossy, leaves a rank out, and scales the rest to make up for it",
    properties={"exact": False, "error": "unbiased", "lossless_on": ["shared-sign"], "convergence_calls": 64},
)
class LossySkipsRank:
    """Calls itself lossy, leaves a rank out, and scales the rest to make up for it."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        size = self.problem.world_size
        if self.problem.rank == size - 1:
            buffer.zero_()
        self.comm.backend.all_reduce(buffer)
        buffer.mul_(size / (size - 1))


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
