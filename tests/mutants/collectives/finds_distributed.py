"""Finds torch.distributed by its name at run time."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="finds-distributed",
    family="collectives",
    implements=("all_reduce",),
    summary="finds torch.distributed by its name at run time",
    properties={"exact": True},
)
class FindsDistributed:
    """Finds torch.distributed by its name at run time."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        getattr(torch, "dis" + "tributed").all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
