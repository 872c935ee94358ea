"""Triton kernels of ``tilus``: weights of 1 to 8 bits are expanded in registers, next to the product.

Layout. A row's codes are cut into chunks of 32 · J; code i · J + j of a chunk belongs to lane j, with i from 0 to 31.
A lane's 32 codes of b bits fill b words exactly, so that no width wastes a bit. Widths that divide 32 are fields of
words; the others are sums of such, as 7 = 4 + 2 + 1, the widest lowest. Words are stored (b, n, lanes): neighbouring
threads read neighbouring lanes, 16 bytes each, whatever the width, and so they read elements of X.

Expansion. A float32 with exponent 150 − s has a fraction whose bit s is worth 1. So a code that stands at bit s of a
word is not shifted and converted: it is masked out where it stands, that exponent is put in front, which gives
2^(23−s) + code, and 2^(23−s) + 2^(b−1) is subtracted. Fields of narrower words stand so that one shift of a word
brings 16 / (bits of the widest) of them to where the widest field ends. An integer operation for each field of a code
and a float operation are all; the integer units are half as many as the others, and shifts and conversions of single
codes would make them the bottleneck.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import torch
import triton
import triton.language as tl
from torch import Tensor

LEAST_ROWS = 16
"""Rows of the smallest matrix product, and its shortest reduction."""
MOST_FEW = 4
"""Rows of X that share expanded weights without tensor cores."""
CODES = 32
"""Codes of a lane."""
MOST_J = 64
"""Lanes of a chunk: as many elements of X are read together."""
EXPONENT = 150 << 23
"""Of a float32 whose last bit is worth 1. An argument of the kernels, since an instruction takes one constant only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one program computes at a time, and on how many warps."""

    block_n: int
    """Columns of Y."""
    block_lanes: int
    warps: int = 4


def fields(bits: int) -> list[int]:
    """Return the powers of two that add up to a width, the largest first."""
    return [width for width in (8, 4, 2, 1) if bits & width]


def place(width: int, widest: int, index: int) -> tuple[int, int]:
    """Return word and lowest bit of a code's field, among the words of fields of its width.

    Codes come in classes of 16 / widest, whose widest fields stand side by side in half a word.

    Args:
        width: Bits of the field.
        widest: Bits of the widest field of such codes.
        index: Code of a lane, 0 to 31.
    """
    size = 16 // widest
    group, inside = divmod(index, size)
    per_half = widest // width
    half, within = divmod(group, per_half)
    word, high = divmod(half, 2)
    return word, 16 * high + width * within + widest * inside


def chunk_lanes(k: int, group: int) -> int:
    """Return J: as many lanes as scales and the length of the reduction allow without padding."""
    lanes = gcd(MOST_J, group)
    while lanes > 1 and k % (CODES * lanes):
        lanes //= 2
    return lanes


def pack_lanes(codes_NK: Tensor, bits: int, group: int) -> Tensor:
    """Pack codes below 2^bits into words (b, n, ⌈k/32⌉), int32; k is padded to a multiple of 32.

    Args:
        codes_NK: Unsigned bytes.
        bits: b, 1 to 8.
        group: Codes that share a scale.
    """
    n, k = codes_NK.shape
    lanes = chunk_lanes(k, group)
    padded = torch.nn.functional.pad(codes_NK, (0, -k % (CODES * lanes))).view(n, -1, CODES, lanes)
    # (32, n, lanes): by place within a lane.
    by_place = padded.permute(2, 0, 1, 3).reshape(CODES, n, -1)
    packed = torch.zeros(bits, n, by_place.shape[2], dtype=torch.int64, device=codes_NK.device)
    widths = fields(bits)
    lift = 0
    for width in widths:
        for index in range(CODES):
            word, bit = place(width, widths[0], index)
            field = by_place[index].to(torch.int64) >> lift & ((1 << width) - 1)
            # Words of wider fields come first: they are as many as their bits.
            packed[lift + word] |= field << bit
        lift += width
    # Into the range of int32, which has the same bits.
    return torch.where(packed >= 1 << 31, packed - (1 << 32), packed).to(torch.int32)


@triton.jit
def _load(packed, plane, at, inside, NUM: tl.constexpr, EVEN: tl.constexpr):
    """Return all words of lanes. They are asked for together, and before anything waits: memory is far away."""
    words = ()
    for word in tl.static_range(NUM):
        if EVEN:
            words += (tl.load(packed + word * plane + at).to(tl.uint32, bitcast=True),)
        else:
            words += (tl.load(packed + word * plane + at, mask=inside, other=0).to(tl.uint32, bitcast=True),)
    return words


@triton.jit
def _field(words, CODE: tl.constexpr, P0: tl.constexpr, P: tl.constexpr, LIFT: tl.constexpr):
    """Return the word with field P of a code, moved to where the field belongs; the rest is masked later."""
    # The class of the code, and the bit where its field stands less the one where it belongs: see ``place``.
    HALF: tl.constexpr = CODE // (16 // P0)
    BY: tl.constexpr = HALF // (P0 // P) % 2 * 16 + P * (HALF % (P0 // P)) - LIFT
    word = words[LIFT + HALF // (2 * P0 // P)]
    if BY < 0:
        return word << (0 - BY)
    else:
        return word >> BY


@triton.jit
def _number(words, exponent, CODE: tl.constexpr, P0: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr):
    """Return one code of each lane less 2^(b−1), as float32: see the head of this file."""
    S: tl.constexpr = P0 * (CODE % (16 // P0))
    # An exclusive or, which the compiler does not move behind the others: so it takes one instruction with the mask.
    pattern = (_field(words, CODE, P0, P0, 0) & (((1 << P0) - 1) << S)) ^ (exponent - (S << 23))
    if P1 > 0:
        pattern |= _field(words, CODE, P0, P1, P0) & (((1 << P1) - 1) << (S + P0))
    if P2 > 0:
        pattern |= _field(words, CODE, P0, P2, P0 + P1) & (((1 << P2) - 1) << (S + P0 + P1))
    # Exact: both are whole numbers below 2^24.
    return pattern.to(tl.float32, bitcast=True) - ((1 << (23 - S)) + (1 << (P0 + P1 + P2 - 1)))


@triton.jit
def _few_rows(
    x, packed, scales, y, exponent, M, N, K: tl.constexpr, U: tl.constexpr, GROUP: tl.constexpr,
    P0: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, J: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """One row of X, two or four: products and sums in float32, without tensor cores. C chunks of J lanes."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    # What lies beyond the end repeats the last: such loads need no mask, and such sums are not stored.
    column = tl.minimum(columns, N - 1)
    first = tl.program_id(1) * ROWS
    # Not N.to(…): an argument that is 1 arrives as a constant.
    plane = tl.cast(N, tl.int64) * U
    NUM_GROUPS: tl.constexpr = K // GROUP
    totals = ()
    for _ in tl.static_range(ROWS):
        totals += (tl.zeros((BLOCK_N, BLOCK_C, J), tl.float32),)
    for start in tl.range(0, U // J, BLOCK_C):
        chunks = start + tl.arange(0, BLOCK_C)
        lanes = chunks[:, None] * J + tl.arange(0, J)[None, :]
        at = column[:, None, None] * U + lanes[None, :, :]
        words = _load(packed, plane, at, lanes[None, :, :] < U, P0 + P1 + P2, (U // J) % BLOCK_C == 0)
        depth = chunks[:, None] * (32 * J) + tl.arange(0, J)[None, :]
        for i in tl.static_range(32):
            # One scale for all lanes of a chunk.
            group = tl.minimum((chunks * 32 + i) * J // GROUP, NUM_GROUPS - 1)
            scale = tl.load(scales + column[:, None] * NUM_GROUPS + group[None, :]).to(tl.float32)
            weight = _number(words, exponent, i, P0, P1, P2) * scale[:, :, None]
            here = depth + i * J
            sums = ()
            for r in tl.static_range(ROWS):
                row = tl.minimum(first + r, M - 1).to(tl.int64) * K
                # So few that each thread loads what it needs by itself: no barrier holds the loads of codes back.
                x_CJ = tl.load(x + row + here, mask=here < K, other=0.0).to(tl.float32)
                sums += (totals[r] + x_CJ[None, :, :] * weight,)
            totals = sums
    for r in tl.static_range(ROWS):
        tl.store(
            y + (first + r).to(tl.int64) * N + columns,
            tl.sum(tl.sum(totals[r], axis=2), axis=1).to(y.dtype.element_ty),
            mask=(columns < N) & (first + r < M),
        )


@triton.jit
def _inputs(x, scales, row, column, start, lanes, QUAD: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
            J: tl.constexpr, ALIKE: tl.constexpr):  # fmt: skip
    """Return what four codes of each lane are multiplied by: elements of X, and scales."""
    tiles, rates = (), ()
    NUM_GROUPS: tl.constexpr = K // GROUP
    for v in tl.static_range(4):
        here = lanes // J * (32 * J) + lanes % J + (QUAD * 4 + v) * J
        place = x + row[:, None].to(tl.int64) * K + here[None, :]
        tiles += (tl.load(place, mask=(here < K)[None, :], other=0.0),)
        # Where all lanes of a block are of one chunk, they have one scale.
        deep = (start // J * 32 + QUAD * 4 + v) * J if ALIKE else here[None, :]
        group = tl.minimum(deep // GROUP, NUM_GROUPS - 1)
        rates += (tl.load(scales + column[:, None] * NUM_GROUPS + group),)
    return tiles, rates


@triton.jit
def _many_rows(
    x, packed, scales, y, M, N, K: tl.constexpr, U: tl.constexpr, GROUP: tl.constexpr,
    P0: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, J: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_U: tl.constexpr,
):  # fmt: skip
    """Sixteen rows of X or more: products of tensor cores."""
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    column = tl.minimum(columns, N - 1)
    row = tl.minimum(rows, M - 1)
    plane = tl.cast(N, tl.int64) * U
    ALIKE: tl.constexpr = J % BLOCK_U == 0
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for start in tl.range(0, U, BLOCK_U, num_stages=1):
        lanes = start + tl.arange(0, BLOCK_U)
        at = column[:, None] * U + lanes[None, :]
        words = _load(packed, plane, at, lanes[None, :] < U, P0 + P1 + P2, U % BLOCK_U == 0)
        tiles, rates = _inputs(x, scales, row, column, start, lanes, 0, K, GROUP, J, ALIKE)
        for quad in tl.static_range(8):
            x_tiles, scale_tiles = tiles, rates
            if quad < 7:
                # Asked for before the barriers of this quad's products, so that its latency passes behind them.
                tiles, rates = _inputs(x, scales, row, column, start, lanes, quad + 1, K, GROUP, J, ALIKE)
            for v in tl.static_range(4):
                # A constant exponent: only so the conversion to the products' layout moves ahead, to the packed words.
                number = _number(words, 150 << 23, quad * 4 + v, P0, P1, P2)
                # Code times scale is exact in float32, for scales of 16 bits: it is rounded once, as in the dtype.
                weight = (number * scale_tiles[v].to(tl.float32)).to(x.dtype.element_ty)
                total = tl.dot(x_tiles[v], tl.trans(weight), total, input_precision="ieee")
    tl.store(
        y + rows[:, None].to(tl.int64) * N + columns[None, :],
        total.to(y.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def chosen_shape(dots: bool) -> Shape:
    """Return the layout with tensor cores or without: so small that all programs of a layer run at the same time."""
    return Shape(block_n=32, block_lanes=32) if dots else Shape(block_n=16, block_lanes=64)


def lowbit_gemm(
    x_MK: Tensor,
    packed_BNU: Tensor,
    scales_NJ: Tensor,
    y_MN: Tensor,
    *,
    bits: int,
    shape: Shape | None = None,
    dots: bool | None = None,
) -> None:
    """Multiply by weights from ``pack_lanes``; all tensors contiguous, of at most float32.

    Args:
        x_MK: X.
        packed_BNU: Packed codes.
        scales_NJ: Scales of groups of k / j codes.
        y_MN: Where the product goes.
        bits: Of a code.
        shape: In the place of the default.
        dots: Whether tensor cores multiply; by default from five rows of 16 bits on.
    """
    (m, k), (_, n, lanes) = x_MK.shape, packed_BNU.shape
    group = k // scales_NJ.shape[1]
    chunk = chunk_lanes(k, group)
    # Products in "ieee" float32 take no tensor cores.
    dots = (m > MOST_FEW and x_MK.dtype != torch.float32) if dots is None else dots
    shape = shape or chosen_shape(dots)
    widths = [*fields(bits), 0, 0]
    block_lanes = min(triton.next_power_of_2(lanes), shape.block_lanes)
    if dots:
        rows = min(max(triton.next_power_of_2(m), LEAST_ROWS), 64)
        kernel, sizes, constants = _many_rows, {"BLOCK_U": max(block_lanes, LEAST_ROWS)}, ()
        if torch.version.hip is None:
            # Four programs a multiprocessor.
            sizes["maxnreg"] = 128
    else:
        rows = min(triton.next_power_of_2(m), MOST_FEW)
        kernel, sizes, constants = _few_rows, {"BLOCK_C": max(block_lanes // chunk, 1)}, (EXPONENT,)
    kernel[(triton.cdiv(n, shape.block_n), triton.cdiv(m, rows))](
        x_MK, packed_BNU, scales_NJ, y_MN, *constants, m, n,
        K=k, U=lanes, GROUP=group, P0=widths[0], P1=widths[1], P2=widths[2], J=chunk,
        ROWS=rows, BLOCK_N=shape.block_n, num_warps=shape.warps, **sizes,
    )  # fmt: skip
