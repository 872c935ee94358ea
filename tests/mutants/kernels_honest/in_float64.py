"""Multiplies in float64."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="in-float64",
    family="kernels",
    implements=("gemm",),
    summary="multiplies in float64",
)
class InFloat64:
    """Multiplies in float64."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        c_MN.copy_(a_MK.double() @ b_KN.double())
