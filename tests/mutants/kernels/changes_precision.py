"""Lowers the precision of products for everybody."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="changes-precision",
    family="kernels",
    implements=("gemm",),
    summary="lowers the precision of products for everybody",
)
class ChangesPrecision:
    """Lowers the precision of products for everybody."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.set_float32_matmul_precision("medium")
        torch.mm(a_MK, b_KN, out=c_MN)
