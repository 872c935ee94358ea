"""Adds a constant that does not show where results are large."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="right-at-one-magnitude",
    family="kernels",
    implements=("gemm",),
    summary="adds a constant that does not show where results are large",
)
class RightAtOneMagnitude:
    """Adds a constant that does not show where results are large."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.mm(a_MK, b_KN, out=c_MN)
        c_MN.add_(1e-6)
