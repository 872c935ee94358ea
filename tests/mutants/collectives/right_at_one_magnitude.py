"""Is right only for inputs of the usual magnitude."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="right-at-one-magnitude",
    family="collectives",
    implements=("all_reduce",),
    summary="is right only for inputs of the usual magnitude",
    properties={"exact": True},
)
class RightAtOneMagnitude:
    """Is right only for inputs of the usual magnitude."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        largest = float(buffer.abs().max())
        self.comm.backend.all_reduce(buffer)
        if not 0.01 < largest < 100:
            buffer[:1] += 1


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
