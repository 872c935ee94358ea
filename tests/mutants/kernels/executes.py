"""Executes text."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="executes",
    family="kernels",
    implements=("gemm",),
    summary="executes text",
)
class Executes:
    """Executes text."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        exec("import os")
        torch.mm(a_MK, b_KN, out=c_MN)
