"""Writes zeros where the result is small."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="small-values-dropped",
    family="kernels",
    implements=("gemm",),
    summary="writes zeros where the result is small",
)
class SmallValuesDropped:
    """Writes zeros where the result is small."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        product = a_MK @ b_KN
        product[product.abs() < product.abs().max() / 200] = 0
        c_MN.copy_(product)
