"""Keeps memory for intermediate results in its instance."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="scratch",
    family="kernels",
    implements=("gemm",),
    summary="keeps memory for intermediate results in its instance",
)
class Scratch:
    """Keeps memory for intermediate results in its instance."""

    def __init__(self, problem: Problem) -> None:
        self.scratch_MN = problem.empty(problem.integer("m"), problem.integer("n"))

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        torch.mm(a_MK, b_KN, out=self.scratch_MN)
        c_MN.copy_(self.scratch_MN)
