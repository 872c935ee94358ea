"""Leaves its own input as the result."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="identity",
    family="collectives",
    implements=("all_reduce",),
    summary="leaves its own input as the result",
    properties={"exact": True},
)
class Identity:
    """Leaves its own input as the result."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_reduce(buffer.clone())


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
