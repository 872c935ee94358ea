"""Residual addition and RMSNorm in one pass over memory.

Algorithm: take a few rows at a time: add, take the mean square, scale, write both results while the rows are still in
the cache. On accelerators one Triton program holds one row in registers.

Cost: x and residual are read once, s and y written once: 4 · tokens · hidden elements, against about 10 for separate
operators.
Differences between devices: on CPUs blocks of rows that fit into half of a second-level cache stand for the fusion.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.accelerated import triton_kernel
from paceline.families.kernels.api.problem import Problem, use_triton

# Rows of one block must still be cached when they are scaled; see the header for the share of the cache.
BLOCK_BYTES = 256 << 10


@technique(
    name="fused-add-rmsnorm",
    family="kernels",
    implements=("add_rmsnorm",),
    summary="residual addition and RMSNorm in one pass over memory",
    properties={"compiles": "accelerator"},
)
class FusedAddRmsNorm:
    """T tokens, H hidden."""

    def __init__(self, problem: Problem, *, backend: str = "auto") -> None:
        self.triton = triton_kernel("triton_norm", "add_rmsnorm") if use_triton(problem, backend) else None
        self.wide = torch.promote_types(problem.dtype, torch.float32)
        self.rows = max(BLOCK_BYTES // (problem.integer("hidden") * self.wide.itemsize), 1)

    def run(self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor) -> None:
        """Add and normalise, some rows at a time."""
        if self.triton is not None:
            self.triton(x_TH, residual_TH, weight_H, y_TH, s_TH)
            return
        weight_H = weight_H.to(self.wide)
        for begin in range(0, x_TH.shape[0], self.rows):
            rows = slice(begin, begin + self.rows)
            # The norm is that of the sum as it was rounded into ``s``, which is what separate operators would read.
            s_RH = torch.add(x_TH[rows], residual_TH[rows], out=s_TH[rows]).to(self.wide)
            # One pass that writes no squares.
            norm_R1 = torch.linalg.vector_norm(s_RH, dim=-1, keepdim=True)
            scale_R1 = torch.rsqrt(norm_R1.square_().div_(s_RH.shape[-1]).add_(1e-6))
            # Without a conversion the result can be written where it belongs, and needs no buffer.
            if y_TH.dtype == self.wide:
                torch.mul(s_RH, scale_R1, out=y_TH[rows]).mul_(weight_H)
            else:
                y_TH[rows] = (s_RH * scale_R1).mul_(weight_H)
