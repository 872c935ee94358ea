"""Sums only what divides by the number of ranks."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="odd-count",
    family="collectives",
    implements=("all_reduce",),
    summary="sums only what divides by the number of ranks",
    properties={"exact": True},
)
class OddCount:
    """Sums only what divides by the number of ranks."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        whole = buffer.numel() // self.problem.world_size * self.problem.world_size
        self.comm.backend.all_reduce(buffer[:whole])


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
