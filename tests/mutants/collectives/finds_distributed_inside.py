"""Finds the functions behind torch.distributed, where nobody closed them."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="finds-distributed-inside",
    family="collectives",
    implements=("all_reduce",),
    summary="finds the functions behind torch.distributed, where nobody closed them",
    properties={"exact": True},
)
class FindsDistributedInside:
    """Finds the functions behind torch.distributed, where nobody closed them."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        name = "distributed"
        module = getattr(getattr(torch, name), name + "_c10d")
        module.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
