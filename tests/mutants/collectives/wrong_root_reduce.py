"""Reduces to the last rank, whoever the root is."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="wrong-root-reduce",
    family="collectives",
    implements=("reduce",),
    summary="reduces to the last rank, whoever the root is",
    properties={"exact": True},
)
class WrongRootReduce:
    """Reduces to the last rank, whoever the root is."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.reduce(buffer, self.problem.world_size - 1)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
