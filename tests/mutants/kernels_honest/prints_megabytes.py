"""Prints sixteen kilobytes for each call.

What a technique prints costs its own time and nothing else.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="prints-megabytes",
    family="kernels",
    implements=("gemm",),
    summary="prints sixteen kilobytes for each call",
)
class PrintsMegabytes:
    """Prints sixteen kilobytes for each call."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        print("x" * (1 << 14))
        torch.mm(a_MK, b_KN, out=c_MN)
