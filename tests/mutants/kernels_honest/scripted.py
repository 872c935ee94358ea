"""Is compiled by TorchScript."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@torch.jit.script
def multiply(a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
    """Multiply."""
    torch.mm(a_MK, b_KN, out=c_MN)


@technique(
    name="scripted",
    family="kernels",
    implements=("gemm",),
    summary="is compiled by TorchScript",
)
class Scripted:
    """Is compiled by TorchScript."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        multiply(a_MK, b_KN, c_MN)
