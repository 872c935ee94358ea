"""Gives one rank a result that is one unit in the last place off."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="tiny-rank-difference",
    family="collectives",
    implements=("all_reduce",),
    summary="gives one rank a result that is one unit in the last place off",
    properties={"exact": True},
)
class TinyRankDifference:
    """Gives one rank a result that is one unit in the last place off."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_reduce(buffer)
        if self.problem.rank == 1 and buffer.dtype.is_floating_point:
            buffer.copy_(torch.nextafter(buffer, torch.full_like(buffer, torch.inf)))


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
