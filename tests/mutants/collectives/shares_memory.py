"""Maps a file that all ranks share."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="shares-memory",
    family="collectives",
    implements=("all_reduce",),
    summary="maps a file that all ranks share",
    properties={"exact": True},
)
class SharesMemory:
    """Maps a file that all ranks share."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        shared = torch.from_file(
            "/dev/shm/paceline-mutant", shared=True, size=buffer.numel(), dtype=buffer.dtype
        )
        shared.copy_(buffer)
        self.comm.backend.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
