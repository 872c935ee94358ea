"""Adds in bfloat16."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="reduced-precision",
    family="collectives",
    implements=("all_reduce",),
    summary="adds in bfloat16",
    properties={"exact": True},
)
class ReducedPrecision:
    """Adds in bfloat16."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        if buffer.dtype.is_floating_point:
            narrow = buffer.bfloat16()
            self.comm.backend.all_reduce(narrow)
            buffer.copy_(narrow)
        else:
            self.comm.backend.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
