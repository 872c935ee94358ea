"""Loses precision without saying which kind of error it makes."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="undeclared-loss",
    family="collectives",
    implements=("all_reduce",),
    summary="loses precision without saying which kind of error it makes",
    properties={"exact": False},
)
class UndeclaredLoss:
    """Loses precision without saying which kind of error it makes."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        narrow = buffer.bfloat16()
        self.comm.backend.all_reduce(narrow)
        buffer.copy_(narrow)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
