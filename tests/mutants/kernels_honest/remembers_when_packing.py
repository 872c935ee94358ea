"""Notes a few numbers while packing."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="remembers-when-packing",
    family="kernels",
    implements=("dequant_gemm",),
    summary="notes a few numbers while packing",
)
class RemembersWhenPacking:
    """Notes a few numbers while packing."""

    def __init__(self, problem: Problem) -> None:
        self.zero, self.group = 0, 1
        self.bits = problem.integer("bits")

    def pack(self, codes_NK: Tensor, scales_NG: Tensor) -> tuple[Tensor, ...]:
        """Note the zero point and the group; the weights stay as they are."""
        self.zero = 2 ** (self.bits - 1)
        self.group = codes_NK.shape[1] // scales_NG.shape[1]
        return codes_NK, scales_NG

    def run(self, x_MK: Tensor, codes_NK: Tensor, scales_NG: Tensor, y_MN: Tensor) -> None:
        """Compute as anybody may."""
        weight_NK = (codes_NK.to(x_MK.dtype) - self.zero) * scales_NG.repeat_interleave(self.group, dim=1)
        torch.mm(x_MK, weight_NK.T, out=y_MN)
