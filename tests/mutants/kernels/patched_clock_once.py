"""Replaces the cell's clock by one that puts the right one back when it was read.

The cell reads its clock through a local name, so the replacement is never called and is found.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="patched-clock-once",
    family="kernels",
    implements=("gemm",),
    summary="replaces the cell's clock by one that puts the right one back when it was read",
)
class PatchedClockOnce:
    """Replaces the cell's clock by one that puts the right one back when it was read."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        module = vars(torch)["sy" + "s"].modules[
            "paceline.families.kernels.core.timing_process." + "ser" + "ver"
        ]
        names = vars(module)
        right = names["_perf_ns"]

        def once() -> int:
            names["_perf_ns"] = right
            return int(right()) - 100_000

        names["_perf_ns"] = once
        torch.mm(a_MK, b_KN, out=c_MN)
        time.sleep(0.001)
