"""Returns the result that it gave for an input at the same address."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem

RESULTS: dict[tuple[int, int], Tensor] = {}


@technique(
    name="cached-by-address",
    family="collectives",
    implements=("all_reduce",),
    summary="returns the result that it gave for an input at the same address",
    properties={"exact": True},
)
class CachedByAddress:
    """Returns the result that it gave for an input at the same address."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        key = (buffer.data_ptr(), buffer.numel())
        self.comm.backend.all_reduce(buffer)
        buffer.copy_(RESULTS.setdefault(key, buffer.clone()))


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
