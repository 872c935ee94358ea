"""Packs expanded weights, transposed, and says so."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="packs-transposed",
    family="kernels",
    implements=("dequant_gemm",),
    summary="packs expanded weights, transposed, and says so",
)
class PacksTransposed:
    """Packs expanded weights, transposed, and says so."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def pack(self, codes_NK: Tensor, scales_NG: Tensor) -> tuple[Tensor, ...]:
        """Expand and transpose."""
        zero = 2 ** (self.problem.integer("bits") - 1)
        scale_NK = scales_NG.repeat_interleave(codes_NK.shape[1] // scales_NG.shape[1], dim=1)
        return (((codes_NK.to(scales_NG.dtype) - zero) * scale_NK).T.contiguous(),)

    def run(self, x_MK: Tensor, weight_KN: Tensor, y_MN: Tensor) -> None:
        """Compute as anybody may."""
        torch.mm(x_MK, weight_KN, out=y_MN)
