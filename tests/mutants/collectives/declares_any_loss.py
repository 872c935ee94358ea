"""Declares an error bound that a result of zeros would meet."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="declares-any-loss",
    family="collectives",
    implements=("all_reduce",),
    summary="declares an error bound that a result of zeros would meet",
    properties={"exact": False, "error": "bounded", "max_relative_l2": 1.0, "lossless_on": ["shared-sign"]},
)
class DeclaresAnyLoss:
    """Declares an error bound that a result of zeros would meet."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        buffer.copy_(torch.where(buffer.abs() == 1, buffer, 0.5 * buffer))
        self.comm.backend.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
