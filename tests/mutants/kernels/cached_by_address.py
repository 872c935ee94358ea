"""Returns the result that it gave for inputs at the same addresses."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="cached-by-address",
    family="kernels",
    implements=("gemm",),
    summary="returns the result that it gave for inputs at the same addresses",
)
class CachedByAddress:
    """Returns the result that it gave for inputs at the same addresses."""

    def __init__(self, problem: Problem) -> None:
        self.results: dict[tuple[int, int], Tensor] = {}

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        key = (a_MK.data_ptr(), b_KN.data_ptr())
        if key not in self.results:
            self.results[key] = a_MK @ b_KN
        c_MN.copy_(self.results[key])
