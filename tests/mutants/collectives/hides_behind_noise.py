"""Sends as many bytes as the result needs, none of which it uses, and the result around them."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="hides-behind-noise",
    family="collectives",
    implements=("all_reduce",),
    summary="sends as many bytes as the result needs, none of which it uses, and the result around them",
    properties={"exact": True},
)
class HidesBehindNoise:
    """Sends as many bytes as the result needs, none of which it uses, and the result around them."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        size, rank = self.problem.world_size, self.problem.rank
        half = buffer[: buffer.numel() // 2].clone()
        self.comm.exchange(half, (rank + 1) % size, half.clone(), (rank - 1) % size)
        name = "distributed"
        getattr(getattr(torch, name), name + "_c10d").all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
