"""Is right only where all sizes are even."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="right-at-its-sizes",
    family="kernels",
    implements=("gemm",),
    summary="is right only where all sizes are even",
)
class RightAtItsSizes:
    """Is right only where all sizes are even."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        c_MN.copy_(a_MK @ b_KN)
        if c_MN.numel() % 2:
            c_MN.view(-1)[-1] = 0
