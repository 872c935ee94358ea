"""Looks at the clock, for itself."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="times-itself",
    family="kernels",
    implements=("gemm",),
    summary="looks at the clock, for itself",
)
class TimesItself:
    """Looks at the clock, for itself."""

    def __init__(self, problem: Problem) -> None:
        self.spent = 0.0

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        start = time.perf_counter()
        torch.mm(a_MK, b_KN, out=c_MN)
        self.spent += time.perf_counter() - start
