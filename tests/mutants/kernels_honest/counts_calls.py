"""Counts its calls, and computes all the same."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


class Multiplier:
    """A callable object with a state."""

    def __init__(self) -> None:
        self.used = 0

    def __call__(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Multiply."""
        self.used += 1
        torch.mm(a_MK, b_KN, out=c_MN)


@technique(
    name="counts-calls",
    family="kernels",
    implements=("gemm",),
    summary="counts its calls, and computes all the same",
)
class CountsCalls:
    """Counts its calls, and computes all the same."""

    def __init__(self, problem: Problem) -> None:
        self.calls = 0
        self.multiply = Multiplier()

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        self.calls += 1
        self.multiply(a_MK, b_KN, c_MN)
