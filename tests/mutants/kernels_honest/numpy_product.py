"""Multiplies in numpy, without a copy."""

from __future__ import annotations

import numpy
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="numpy-product",
    family="kernels",
    implements=("gemm",),
    summary="multiplies in numpy, without a copy",
)
class NumpyProduct:
    """Multiplies in numpy, without a copy."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        numpy.matmul(a_MK.numpy(), b_KN.numpy(), out=c_MN.numpy())
