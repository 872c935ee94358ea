"""Makes every comparison true."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="patched-oracle",
    family="collectives",
    implements=("all_reduce",),
    summary="makes every comparison true",
    properties={"exact": True},
)
class PatchedOracle:
    """Makes every comparison true."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_reduce(buffer)
        torch.equal = lambda left, right: True


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
