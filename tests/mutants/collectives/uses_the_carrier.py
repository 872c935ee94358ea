"""Uses the communicator's own carrier, which nobody counts."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="uses-the-carrier",
    family="collectives",
    implements=("all_reduce",),
    summary="uses the communicator's own carrier, which nobody counts",
    properties={"exact": True},
)
class UsesTheCarrier:
    """Uses the communicator's own carrier, which nobody counts."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm._transport.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
