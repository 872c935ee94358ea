"""Imports the process that it lives in, to replace its clock."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem
from paceline.families.kernels.core.timing_process import server


@technique(
    name="imports-the-cell",
    family="kernels",
    implements=("gemm",),
    summary="imports the process that it lives in, to replace its clock",
)
class ImportsTheCell:
    """Imports the process that it lives in, to replace its clock."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        server._perf_ns = lambda: 0
        torch.mm(a_MK, b_KN, out=c_MN)
