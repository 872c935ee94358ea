"""Returns before its transfer has been waited for."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="leaves-a-transfer",
    family="collectives",
    implements=("all_reduce",),
    summary="returns before its transfer has been waited for",
    properties={"exact": True},
)
class LeavesATransfer:
    """Returns before its transfer has been waited for."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        self.transfer: object = None

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.transfer = self.comm.backend.start_all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
