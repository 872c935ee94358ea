"""Computes the transpose and turns it around."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="transposed",
    family="kernels",
    implements=("gemm",),
    summary="computes the transpose and turns it around",
)
class Transposed:
    """Computes the transpose and turns it around."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        c_MN.copy_((b_KN.T @ a_MK.T).T)
