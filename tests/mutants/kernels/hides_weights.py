"""Keeps expanded weights in its module, and returns a number for them.

A right result; what it keeps must count as weights.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem

KEPT: list[Tensor] = []


@technique(
    name="hides-weights",
    family="kernels",
    implements=("dequant_gemm",),
    summary="keeps expanded weights in its module, and returns a number for them",
)
class HidesWeights:
    """Keeps expanded weights in its module, and returns a number for them."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def pack(self, codes_NK: Tensor, scales_NG: Tensor) -> tuple[Tensor, ...]:
        """Return one element for each set of weights, which names the real ones."""
        zero = 2 ** (self.problem.integer("bits") - 1)
        scale_NK = scales_NG.repeat_interleave(codes_NK.shape[1] // scales_NG.shape[1], dim=1)
        KEPT.append((codes_NK.to(scales_NG.dtype) - zero) * scale_NK)
        return (torch.tensor([len(KEPT) - 1]),)

    def run(self, x_MK: Tensor, number: Tensor, y_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.mm(x_MK, KEPT[int(number)].T, out=y_MN)
