"""Replaces the method that copies tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="patched-copy",
    family="kernels",
    implements=("gemm",),
    summary="replaces the method that copies tensors",
)
class PatchedCopy:
    """Replaces the method that copies tensors."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        Tensor.copy_ = lambda self, other: self
        torch.mm(a_MK, b_KN, out=c_MN)
