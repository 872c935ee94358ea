"""Replaces the performance counter while it runs."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="patched-clock",
    family="kernels",
    implements=("gemm",),
    summary="replaces the performance counter while it runs",
)
class PatchedClock:
    """Replaces the performance counter while it runs."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        time.perf_counter_ns = lambda: 0
        torch.mm(a_MK, b_KN, out=c_MN)
