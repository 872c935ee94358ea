"""Takes rank 0 for the root, whoever it is."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="wrong-root",
    family="collectives",
    implements=("broadcast",),
    summary="takes rank 0 for the root, whoever it is",
    properties={"exact": True},
)
class WrongRoot:
    """Takes rank 0 for the root, whoever it is."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.broadcast(buffer, 0)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
