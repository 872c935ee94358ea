"""Asks for more memory than there is."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="takes-all-memory",
    family="kernels",
    implements=("gemm",),
    summary="asks for more memory than there is",
)
class TakesAllMemory:
    """Asks for more memory than there is."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.empty(1 << 50)
        torch.mm(a_MK, b_KN, out=c_MN)
