"""Returns the result of the call before."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="previous-output",
    family="kernels",
    implements=("gemm",),
    summary="returns the result of the call before",
)
class PreviousOutput:
    """Returns the result of the call before."""

    def __init__(self, problem: Problem) -> None:
        self.kept: Tensor | None = None

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        kept = self.kept if self.kept is not None else a_MK @ b_KN
        self.kept = a_MK @ b_KN
        c_MN.copy_(kept)
