"""Remembers slices of shapes, never results."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="cached-slices",
    family="kernels",
    implements=("gemm",),
    summary="remembers slices of shapes, never results",
)
class CachedSlices:
    """Remembers slices of shapes, never results."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        for rows in slices(a_MK.shape[0]):
            torch.mm(a_MK[rows], b_KN, out=c_MN[rows])


@lru_cache
def slices(count: int) -> tuple[slice, ...]:
    """Return slices of rows."""
    return tuple(slice(begin, begin + 16) for begin in range(0, count, 16))
