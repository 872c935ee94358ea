"""Talks through torch.distributed."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="imports-distributed",
    family="collectives",
    implements=("all_reduce",),
    summary="talks through torch.distributed",
    properties={"exact": True},
)
class ImportsDistributed:
    """Talks through torch.distributed."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        dist.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
