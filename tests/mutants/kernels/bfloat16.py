"""Multiplies in bfloat16."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="bfloat16",
    family="kernels",
    implements=("gemm",),
    summary="multiplies in bfloat16",
)
class Bfloat16:
    """Multiplies in bfloat16."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        c_MN.copy_(a_MK.bfloat16() @ b_KN.bfloat16())
