"""Adds up around a ring in which every rank sends before it receives: a send ends only with its receive."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Problem


@technique(
    name="sends-first",
    family="collectives",
    implements=("all_reduce",),
    summary="every rank sends first",
    properties={"exact": True},
)
class SendsFirst:
    """Passes whole buffers around a ring."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Sum over ranks."""
        size, rank = self.problem.world_size, self.problem.rank
        passing = buffer.clone()
        for _ in range(size - 1):
            arriving = torch.empty_like(passing)
            self.comm.send(passing, (rank + 1) % size)
            self.comm.receive(arriving, (rank - 1) % size)
            buffer.add_(arriving)
            passing = arriving


def cost(problem: Problem) -> None:
    """Return nothing."""
