"""Calls two of the backend's collectives in another order on the last rank."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Problem


@technique(
    name="two-orders",
    family="collectives",
    implements=("all_reduce",),
    summary="two collectives in two orders",
    properties={"exact": True},
)
class TwoOrders:
    """Sums twice, of which one is of a part."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Sum over ranks."""
        first = buffer[:1].clone()
        if self.problem.rank == self.problem.world_size - 1:
            self.comm.backend.all_reduce(buffer)
            self.comm.backend.all_reduce(first)
        else:
            self.comm.backend.all_reduce(first)
            self.comm.backend.all_reduce(buffer)


def cost(problem: Problem) -> None:
    """Return nothing."""
