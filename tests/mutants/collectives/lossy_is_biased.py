"""Calls its error unbiased, but shrinks whatever is not one."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="lossy-is-biased",
    family="collectives",
    implements=("all_reduce",),
    summary="calls its error unbiased, but shrinks whatever is not one",
    properties={"exact": False, "error": "unbiased", "lossless_on": ["shared-sign"], "convergence_calls": 64},
)
class LossyIsBiased:
    """Calls its error unbiased, but shrinks whatever is not one."""

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
