"""Writes NaN into the last element."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="nan",
    family="collectives",
    implements=("all_reduce",),
    summary="writes nan into the last element",
    properties={"exact": True},
)
class Nan:
    """Writes NaN into the last element."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_reduce(buffer)
        if buffer.dtype.is_floating_point:
            buffer[-1:] = float("nan")


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
