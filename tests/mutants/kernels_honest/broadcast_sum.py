"""Sums outer products of columns and rows, some at a time."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="broadcast-sum",
    family="kernels",
    implements=("gemm",),
    summary="sums outer products of columns and rows, some at a time",
)
class BroadcastSum:
    """Sums outer products of columns and rows, some at a time."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        c_MN.zero_()
        for k in range(0, a_MK.shape[1], 8):
            c_MN += (a_MK[:, k : k + 8, None] * b_KN[None, k : k + 8]).sum(1)
