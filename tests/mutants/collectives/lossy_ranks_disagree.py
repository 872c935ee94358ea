"""Calls itself lossy and adds noise of its own on every rank."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="lossy-ranks-disagree",
    family="collectives",
    implements=("all_reduce",),
    summary="calls itself lossy and adds noise of its own on every rank",
    properties={"exact": False, "error": "unbiased", "lossless_on": ["shared-sign"], "convergence_calls": 64},
)
class LossyRanksDisagree:
    """Calls itself lossy and adds noise of its own on every rank."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        self.generator = torch.Generator().manual_seed(problem.rank)

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_reduce(buffer)
        noise = torch.randn(buffer.shape, generator=self.generator).to(buffer.dtype) * 0.1
        buffer.add_(torch.where(buffer == buffer.round(), 0, noise))


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
