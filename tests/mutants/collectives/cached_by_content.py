"""Returns the result that it gave for an equal input, without moving a byte."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem

RESULTS: dict[tuple[object, bytes], Tensor] = {}


@technique(
    name="cached-by-content",
    family="collectives",
    implements=("all_reduce",),
    summary="returns the result that it gave for an equal input, without moving a byte",
    properties={"exact": True},
)
class CachedByContent:
    """Returns the result that it gave for an equal input, without moving a byte."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        key = (buffer.dtype, buffer.numpy().tobytes())
        if key not in RESULTS:
            incoming = [self.problem.empty(buffer.numel()) for _ in range(self.problem.world_size - 1)]
            size, rank = self.problem.world_size, self.problem.rank
            total = buffer.clone()
            for shift in range(1, size):
                self.comm.exchange(buffer, (rank + shift) % size, incoming[shift - 1], (rank - shift) % size)
                total += incoming[shift - 1]
            RESULTS[key] = total
        buffer.copy_(RESULTS[key])


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
