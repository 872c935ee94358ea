"""Returns the result that it gave for inputs of the same content.

No inputs come twice, so it only pays for the hash: a right result, and no gain.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem

RESULTS: dict[int, Tensor] = {}


@technique(
    name="cached-by-content",
    family="kernels",
    implements=("gemm",),
    summary="returns the result that it gave for inputs of the same content",
)
class CachedByContent:
    """Returns the result that it gave for inputs of the same content."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        key = hash((a_MK.numpy().tobytes(), b_KN.numpy().tobytes()))
        if key not in RESULTS:
            RESULTS[key] = a_MK @ b_KN
        c_MN.copy_(RESULTS[key])
