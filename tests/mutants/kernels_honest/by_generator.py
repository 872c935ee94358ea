"""Takes its blocks from a generator."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="by-generator",
    family="kernels",
    implements=("gemm",),
    summary="takes its blocks from a generator",
)
class ByGenerator:
    """Takes its blocks from a generator."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def blocks(self, count: int) -> Iterator[slice]:
        """Yield slices of rows."""
        for begin in range(0, count, 16):
            yield slice(begin, begin + 16)

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        for rows in self.blocks(a_MK.shape[0]):
            torch.mm(a_MK[rows], b_KN, out=c_MN[rows])
