"""Sends one element through the communicator and the rest around it."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="hides-behind-one-byte",
    family="collectives",
    implements=("all_reduce",),
    summary="sends one element through the communicator and the rest around it",
    properties={"exact": True},
)
class HidesBehindOneByte:
    """Sends one element through the communicator and the rest around it."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        size, rank = self.problem.world_size, self.problem.rank
        self.comm.exchange(buffer[:1].clone(), (rank + 1) % size, buffer[:1].clone(), (rank - 1) % size)
        name = "distributed"
        getattr(getattr(torch, name), name + "_c10d").all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
