"""Three nested loops over blocks."""

from __future__ import annotations

import itertools

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="blocked",
    family="kernels",
    implements=("gemm",),
    summary="three nested loops over blocks",
)
class Blocked:
    """Three nested loops over blocks."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        c_MN.zero_()
        size = 24
        starts = (range(0, s, size) for s in (*c_MN.shape, a_MK.shape[1]))
        for i, j, k in itertools.product(*starts):
            a, b = a_MK[i : i + size, k : k + size], b_KN[k : k + size, j : j + size]
            c_MN[i : i + size, j : j + size].addmm_(a, b)
