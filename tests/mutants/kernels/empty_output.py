"""Makes its output empty."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="empty-output",
    family="kernels",
    implements=("gemm",),
    summary="makes its output empty",
)
class EmptyOutput:
    """Makes its output empty."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        c_MN.resize_(0)
