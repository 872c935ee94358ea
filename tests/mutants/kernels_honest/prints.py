"""Prints a line for each call."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="prints",
    family="kernels",
    implements=("gemm",),
    summary="prints a line for each call",
)
class Prints:
    """Prints a line for each call."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        print("multiplying")
        torch.mm(a_MK, b_KN, out=c_MN)
