"""Uses the send buffer as scratch."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="corrupted-input",
    family="collectives",
    implements=("reduce_scatter",),
    summary="uses the send buffer as scratch",
    properties={"exact": True},
)
class CorruptedInput:
    """Uses the send buffer as scratch."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, send: Tensor, receive: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.reduce_scatter(receive, send)
        send.mul_(-1)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
