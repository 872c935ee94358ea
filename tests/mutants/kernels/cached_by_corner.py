"""Returns the result that it gave for inputs with the same first row."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem

RESULTS: dict[tuple[tuple[int, ...], tuple[float, ...]], Tensor] = {}


@technique(
    name="cached-by-corner",
    family="kernels",
    implements=("gemm",),
    summary="returns the result that it gave for inputs with the same first row",
)
class CachedByCorner:
    """Returns the result that it gave for inputs with the same first row."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        key = (tuple(a_MK.shape), tuple(a_MK[0].tolist()))
        if key not in RESULTS:
            RESULTS[key] = a_MK @ b_KN
        c_MN.copy_(RESULTS[key])
