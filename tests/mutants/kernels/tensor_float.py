"""Rounds its inputs to ten bits, as TF32 does."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="tensor-float",
    family="kernels",
    implements=("gemm",),
    summary="rounds its inputs to ten bits, as TF32 does",
)
class TensorFloat:
    """Rounds its inputs to ten bits, as TF32 does."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.mm(narrow(a_MK), narrow(b_KN), out=c_MN)


def narrow(value: Tensor) -> Tensor:
    """Round to ten bits of mantissa."""
    bits = value.view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
