"""Multiplies by Einstein's notation."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="einsum",
    family="kernels",
    implements=("gemm",),
    summary="multiplies by Einstein's notation",
)
class Einsum:
    """Multiplies by Einstein's notation."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        c_MN[...] = torch.einsum("mk,kn->mn", a_MK, b_KN)
