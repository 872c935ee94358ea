"""Triton kernel of ``fused-add-rmsnorm``: one program for a row, which stays in registers."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

EPSILON = 1e-6


@triton.jit
def _add_rmsnorm(x, residual, weight, y, s, hidden, epsilon, BLOCK: tl.constexpr):
    # 64 bits: tokens · hidden may exceed 2³¹.
    row = tl.program_id(0).to(tl.int64) * hidden
    columns = tl.arange(0, BLOCK)
    # BLOCK is a power of two, as ``arange`` demands; what is masked adds 0 to the sum of squares.
    inside = columns < hidden
    left = tl.load(x + row + columns, mask=inside, other=0.0)
    right = tl.load(residual + row + columns, mask=inside, other=0.0)
    # Rounded to the dtype of ``s`` before the norm, as separate operators would.
    total = (left.to(tl.float32) + right.to(tl.float32)).to(s.dtype.element_ty)
    tl.store(s + row + columns, total, mask=inside)
    wide = total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / hidden + epsilon)
    gain = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row + columns, (wide * scale * gain).to(y.dtype.element_ty), mask=inside)


def add_rmsnorm(x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor) -> None:
    """Add and normalise all rows; contiguous tensors of at most float32."""
    tokens, hidden = x_TH.shape
    block = triton.next_power_of_2(hidden)
    # 256 elements a warp are eight a lane.
    warps = min(max(block // 256, 1), 16)
    _add_rmsnorm[(tokens,)](
        x_TH, residual_TH, weight_H, y_TH, s_TH, hidden, EPSILON, BLOCK=block, num_warps=warps
    )
