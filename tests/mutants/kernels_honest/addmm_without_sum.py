"""Adds a product to nothing: the poison in the output must not count."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="addmm-without-sum",
    family="kernels",
    implements=("gemm",),
    summary="adds a product to nothing: the poison in the output must not count",
)
class AddmmWithoutSum:
    """Adds a product to nothing: the poison in the output must not count."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        torch.addmm(c_MN, a_MK, b_KN, beta=0, out=c_MN)
