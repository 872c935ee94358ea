"""Finds the process that it lives in among all modules, and replaces its clock."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="finds-the-cell",
    family="kernels",
    implements=("gemm",),
    summary="finds the process that it lives in among all modules, and replaces its clock",
)
class FindsTheCell:
    """Finds the process that it lives in among all modules, and replaces its clock."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        module = vars(torch)["sy" + "s"].modules[
            "paceline.families.kernels.core.timing_process." + "ser" + "ver"
        ]
        vars(module)["_perf_ns"] = lambda: 0
        torch.mm(a_MK, b_KN, out=c_MN)
