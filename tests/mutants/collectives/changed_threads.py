"""Takes more threads than it was given."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="changed-threads",
    family="collectives",
    implements=("all_reduce",),
    summary="takes more threads than it was given",
    properties={"exact": True},
)
class ChangedThreads:
    """Takes more threads than it was given."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_reduce(buffer)
        torch.set_num_threads(torch.get_num_threads() + 1)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
