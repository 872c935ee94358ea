"""States half of the bytes that it sends."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="lies-about-cost",
    family="collectives",
    implements=("all_reduce",),
    summary="states half of the bytes that it sends",
    properties={"exact": True},
)
class LiesAboutCost:
    """States half of the bytes that it sends."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        size, rank = self.problem.world_size, self.problem.rank
        incoming = [self.problem.empty(buffer.numel()) for _ in range(size - 1)]
        for shift in range(1, size):
            self.comm.exchange(buffer, (rank + shift) % size, incoming[shift - 1], (rank - shift) % size)
        for part in incoming:
            buffer.add_(part)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return Cost(
        sent_bytes=problem.count * problem.item_bytes * (problem.world_size - 1) // 2,
        messages=problem.world_size - 1,
        total_bytes=problem.count * problem.item_bytes * (problem.world_size - 1) * problem.world_size // 2,
        steps=problem.world_size - 1,
    )
