"""Sets the communicator's counts to zero after use."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="resets-counters",
    family="collectives",
    implements=("all_reduce",),
    summary="sets the communicator's counts to zero after use",
    properties={"exact": True},
)
class ResetsCounters:
    """Sets the communicator's counts to zero after use."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_reduce(buffer)
        self.comm.counters.reset()


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
