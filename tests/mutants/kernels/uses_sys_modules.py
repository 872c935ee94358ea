"""Looks for the cell among all modules."""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="uses-sys-modules",
    family="kernels",
    implements=("gemm",),
    summary="looks for the cell among all modules",
)
class UsesSysModules:
    """Looks for the cell among all modules."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        sys.modules["paceline.families.kernels.core.timing_process.server"]._perf_ns = lambda: 0
        torch.mm(a_MK, b_KN, out=c_MN)
