"""Triton kernel of ``tilus``: weights of 1 to 8 bits are expanded in registers, next to the product."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

LEAST_ROWS = 16
BLOCK_N, BLOCK_K = 64, 128


@triton.jit
def _lowbit(
    x, packed, scales, y, M, N, K, row_bytes, num_groups,
    BITS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside_n = columns < N
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        inside_k = depth < K
        # The inverse of ``tilus.pack_codes``: eight codes fill BITS bytes, and a code begins inside one of them.
        bit = depth % 8 * BITS
        byte = depth // 8 * BITS + bit // 8
        shift = bit % 8
        base = packed + columns[None, :].to(tl.int64) * row_bytes
        inside = inside_k[:, None] & inside_n[None, :]
        low = tl.load(base + byte[:, None], mask=inside, other=0).to(tl.int32)
        # Only these read a second byte: the others' next byte may lie behind the end of the row.
        spills = (shift + BITS > 8)[:, None]
        high = tl.load(base + byte[:, None] + 1, mask=inside & spills, other=0).to(tl.int32)
        code = ((low | (high << 8)) >> shift[:, None]) & ((1 << BITS) - 1)
        scale = tl.load(
            scales + columns[None, :].to(tl.int64) * num_groups + (depth // GROUP)[:, None],
            mask=inside,
            other=0.0,
        )
        # Code times scale is exact in float32, for scales of 16 bits, so it is rounded once, as in the dtype itself.
        weight = ((code - (1 << (BITS - 1))).to(tl.float32) * scale.to(tl.float32)).to(x.dtype.element_ty)
        x_tile = tl.load(
            x + rows[:, None].to(tl.int64) * K + depth[None, :],
            mask=(rows[:, None] < M) & inside_k[None, :],
            other=0.0,
        )
        total = tl.dot(x_tile, weight, total, input_precision="ieee")
    tl.store(
        y + rows[:, None].to(tl.int64) * N + columns[None, :],
        total.to(y.dtype.element_ty),
        mask=(rows[:, None] < M) & inside_n[None, :],
    )


def lowbit_gemm(x_MK: Tensor, packed_NB: Tensor, scales_NJ: Tensor, y_MN: Tensor, *, bits: int) -> None:
    """Multiply by packed weights; all tensors contiguous."""
    (m, k), (n, row_bytes), num_groups = x_MK.shape, packed_NB.shape, scales_NJ.shape[1]
    # ``tl.dot`` has a least size; decoding fills it with few tokens, and the rest is masked.
    rows = min(max(triton.next_power_of_2(m), LEAST_ROWS), 64)
    grid = (triton.cdiv(n, BLOCK_N), triton.cdiv(m, rows))
    _lowbit[grid](
        x_MK, packed_NB, scales_NJ, y_MN, m, n, k, row_bytes, num_groups,
        BITS=bits, GROUP=k // num_groups, ROWS=rows, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
    )  # fmt: skip
