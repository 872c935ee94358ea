"""Gives its output other data."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="replaced-data",
    family="kernels",
    implements=("gemm",),
    summary="gives its output other data",
)
class ReplacedData:
    """Gives its output other data."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        c_MN.data = a_MK @ b_KN
