"""Computes, and never writes the output."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="unwritten-output",
    family="kernels",
    implements=("gemm",),
    summary="computes, and never writes the output",
)
class UnwrittenOutput:
    """Computes, and never writes the output."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        a_MK @ b_KN
