"""Is right in as many calls as a gate may make, and wrong afterwards."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem

CALLS = [0]


@technique(
    name="right-at-first",
    family="collectives",
    implements=("all_reduce",),
    summary="is right in as many calls as a gate may make, and wrong afterwards",
    properties={"exact": True},
)
class RightAtFirst:
    """Is right in as many calls as a gate may make, and wrong afterwards."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_reduce(buffer)
        CALLS[0] += 1
        if CALLS[0] > 37:
            buffer[:1] = 0


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
