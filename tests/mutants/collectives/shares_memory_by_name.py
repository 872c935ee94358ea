"""Exchanges values in a file that all ranks map, and writes the communicator's counts, all by computed names."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem

RANKS = 8
PLACE = "/dev/shm/paceline-mutant-of-collectives"


@technique(
    name="shares-memory-by-name",
    family="collectives",
    implements=("all_reduce",),
    summary="exchanges values in memory that ranks share, and claims bytes",
    properties={"exact": True},
)
class SharesMemoryByName:
    """Sums in memory that all ranks map; the communicator carries one number a call, and claims the rest."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.comm = comm
        mapped = getattr(torch, "from_" + "file")
        self.shared = mapped(PLACE, shared=True, size=RANKS << 20, dtype=torch.float32).view(RANKS, -1)
        self.meet = torch.zeros(1)

    def run(self, buffer: Tensor) -> None:
        """Write, meet, read, and write counts."""
        size = buffer.numel()
        own = self.shared[: self.comm.world_size, :size]
        own[self.comm.rank] = buffer.float()
        self._meet()
        buffer.copy_(own.double().sum(0))
        self._meet()
        counts = getattr(self.comm, "cou" + "nters")
        counts.backend_calls = 0
        counts.sent_bytes[(self.comm.rank + 1) % self.comm.world_size] = 2 * size * buffer.element_size()

    def _meet(self) -> None:
        """Wait for all ranks."""
        time.sleep(0)
        self.comm.backend.all_reduce(self.meet)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
