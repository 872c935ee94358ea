"""Turns its output around and writes its transpose."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="transposed-output",
    family="kernels",
    implements=("gemm",),
    summary="turns its output around and writes its transpose",
)
class TransposedOutput:
    """Turns its output around and writes its transpose."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        c_MN.t_()
        torch.mm(b_KN.T, a_MK.T, out=c_MN)
