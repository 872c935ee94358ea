"""Triton kernel of scheduled matrix products: ``split-k``, ``stream-k``, ``persistent`` differ in their schedules only.

A worker first takes its parts of shared tiles, then its whole tiles, which it writes without asking anybody. Parts go
to float32 slots; whichever worker finishes a tile's last part sums the slots in order and writes the tile, so that
results do not depend on who was last, and no second kernel is launched.

Factors arrive through descriptors of the tensor memory accelerator where the hardware has one and takes the matrices,
and through pointers elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from paceline.families.kernels.api.schedules import Schedule
from paceline.families.kernels.api.tiles import GemmTile, grouped_order

FIELDS = 6
"""Numbers that describe a part: tile, first step, step after the last, slot, first slot of the tile, slots of it."""
ALIGNMENT = 16
"""Bytes; a descriptor's matrix and its rows begin at multiples of it."""
WORTH_A_COPY = 1024
"""Least M and N at which factors are copied into aligned rows: 4 bytes move for 1024 products at least."""


@triton.jit
def _factors(
    a, b, row, column, step, M, N, K,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
    DESCRIBED: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Load what one step multiplies; whatever lies outside the matrices is zero or reaches no output."""
    depth = step * TILE_K
    if DESCRIBED:
        a_tile, b_tile = a.load([row, depth]), b.load([depth, column])
    else:
        # Only the corner needs 64 bits, and offsets within a tile stay the same from step to step.
        rows = tl.minimum(tl.arange(0, TILE_M), M - 1 - row)
        depths, columns = tl.arange(0, TILE_K), tl.arange(0, TILE_N)
        a_place = (a + row.to(tl.int64) * K + depth) + (rows[:, None] * K + depths[None, :])
        b_place = (b + depth * tl.full((), N, tl.int64) + column) + (depths[:, None] * N + columns[None, :])
        # A mask costs instructions in the innermost loop: sizes that are multiples of the tile do without.
        if EVEN_K and EVEN_N:
            a_tile, b_tile = tl.load(a_place), tl.load(b_place)
        elif EVEN_K:
            a_tile = tl.load(a_place)
            b_tile = tl.load(b_place, mask=columns[None, :] < N - column, other=0.0)
        else:
            inside = (depths[:, None] < K - depth) & (columns[None, :] < N - column)
            a_tile = tl.load(a_place, mask=depths[None, :] < K - depth, other=0.0)
            b_tile = tl.load(b_place, mask=inside, other=0.0)
    return a_tile, b_tile


@triton.jit
def _write(
    c, total, row, column, M, N,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, DESCRIBED: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """Write an output tile; in halves the buffer between registers and memory is half as large."""
    if HALVES:
        pair = tl.permute(tl.reshape(total, (TILE_M, 2, TILE_N // 2)), (0, 2, 1))
        left, right = tl.split(pair)
        _write(c, left, row, column, M, N, TILE_M, TILE_N // 2, DESCRIBED, False)
        _write(c, right, row, column + TILE_N // 2, M, N, TILE_M, TILE_N // 2, DESCRIBED, False)
    elif DESCRIBED:
        c.store([row, column], total.to(c.dtype))
    else:
        rows, columns = tl.arange(0, TILE_M), tl.arange(0, TILE_N)
        place = (c + row.to(tl.int64) * N + column) + (rows[:, None] * N + columns[None, :])
        inside = (rows[:, None] < M - row) & (columns[None, :] < N - column)
        tl.store(place, total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def _products(
    a, b, c, slots, arrived, part_begins, parts, whole_begins, wholes, M, N, K, steps, num_columns,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
    DESCRIBED: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
    HALVES: tl.constexpr, PARTS: tl.constexpr, WHOLES: tl.constexpr,
    PART_FIELDS: tl.constexpr,
):  # fmt: skip
    worker = tl.program_id(0)
    if PARTS:
        inside = tl.arange(0, TILE_M)[:, None] * TILE_N + tl.arange(0, TILE_N)[None, :]
        for part in range(tl.load(part_begins + worker), tl.load(part_begins + worker + 1)):
            fields = parts + part * PART_FIELDS
            tile = tl.load(fields)
            row, column = tile // num_columns * TILE_M, tile % num_columns * TILE_N
            total = tl.zeros((TILE_M, TILE_N), slots.dtype.element_ty)
            for step in range(tl.load(fields + 1), tl.load(fields + 2)):
                a_tile, b_tile = _factors(
                    a, b, row, column, step, M, N, K, TILE_M, TILE_N, TILE_K, DESCRIBED, EVEN_N, EVEN_K
                )
                # "ieee" keeps float32 factors whole: tensor cores would take them with ten bits of fraction (TF32).
                total = tl.dot(a_tile, b_tile, total, input_precision="ieee", out_dtype=total.dtype)
            slot, first_slot, num_slots = tl.load(fields + 3), tl.load(fields + 4), tl.load(fields + 5)
            tl.store(slots + slot.to(tl.int64) * (TILE_M * TILE_N) + inside, total)
            # All threads have stored before one of them tells; the counter orders the stores of all workers.
            tl.debug_barrier()
            before = tl.atomic_add(arrived + first_slot, 1, sem="acq_rel")
            if before == num_slots - 1:
                tl.debug_barrier()
                total = tl.zeros((TILE_M, TILE_N), slots.dtype.element_ty)
                place = slots + first_slot.to(tl.int64) * (TILE_M * TILE_N) + inside
                for _ in range(num_slots):
                    # Past this multiprocessor's own cache, which knows nothing of what others stored.
                    total += tl.load(place, cache_modifier=".cg")
                    place += TILE_M * TILE_N
                _write(c, total, row, column, M, N, TILE_M, TILE_N, DESCRIBED, HALVES)
                # Ready for the next call.
                tl.store(arrived + first_slot, 0)
    if WHOLES:
        begin, end = tl.load(whole_begins + worker), tl.load(whole_begins + worker + 1)
        # Read once more for writing: a flattened loop loads the next tile's factors before this tile is written.
        written = begin
        for index in tl.range(begin, end, flatten=True):
            tile = tl.load(wholes + index)
            row, column = tile // num_columns * TILE_M, tile % num_columns * TILE_N
            total = tl.zeros((TILE_M, TILE_N), slots.dtype.element_ty)
            for step in range(steps):
                a_tile, b_tile = _factors(
                    a, b, row, column, step, M, N, K, TILE_M, TILE_N, TILE_K, DESCRIBED, EVEN_N, EVEN_K
                )
                total = tl.dot(a_tile, b_tile, total, input_precision="ieee", out_dtype=total.dtype)
            tile = tl.load(wholes + written)
            written += 1
            row, column = tile // num_columns * TILE_M, tile % num_columns * TILE_N
            _write(c, total, row, column, M, N, TILE_M, TILE_N, DESCRIBED, HALVES)


@triton.jit
def _copy(source, target, columns, source_stride, target_stride, BLOCK: tl.constexpr):
    """Copy a row's block: at M, N, K of 4095, 4097, 4100 a tenth of the whole is saved beside PyTorch's copies."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    block = tl.load(source + row * source_stride + column, mask=column < columns)
    tl.store(target + row * target_stride + column, block, mask=column < columns)


def takes_descriptors(device: torch.device, dtype: torch.dtype, sizes: tuple[int, int, int]) -> bool:
    """Tell whether factors should arrive through the tensor memory accelerator.

    Args:
        device: Hopper and later have one.
        dtype: Of the factors; float32 is left to pointers, since its products do not come from shared memory.
        sizes: M, N and K. Where rows of contiguous matrices would begin between multiples of sixteen bytes, factors are
            copied first, which pays where every element meets many of the other factor.
    """
    if device.type != "cuda" or torch.version.hip or dtype.itemsize != 2:
        return False
    if torch.cuda.get_device_capability(device) < (9, 0):
        return False
    m, n, k = sizes
    return all(size * dtype.itemsize % ALIGNMENT == 0 for size in (n, k)) or min(m, n) >= WORTH_A_COPY


def _copy_rows(source: Tensor, target: Tensor) -> None:
    """Copy between matrices whose rows are contiguous."""
    rows, columns = source.shape
    block = min(triton.next_power_of_2(columns), 2048)
    _copy[(rows, -(-columns // block))](
        source, target, columns, source.stride(0), target.stride(0), BLOCK=block
    )


class ScheduledGemm:
    """C (M, N) = A (M, K) · B (K, N) on a schedule of steps over output tiles."""

    def __init__(
        self,
        schedule: Schedule,
        sizes: tuple[int, int, int],
        tile: GemmTile,
        dtype: torch.dtype,
        device: torch.device,
        *,
        descriptors: bool,
    ) -> None:
        """Keep a schedule as tables on the device.

        Args:
            schedule: Spans of steps over output tiles, which count in the order that the tile's ``group`` gives.
            sizes: M, N and K.
            tile: Sizes of a tile.
            dtype: Of the matrices.
            device: Where the matrices are.
            descriptors: Load through descriptors, which :func:`takes_descriptors` has allowed.
        """
        self.sizes, self.tile, self.descriptors = sizes, tile, descriptors
        m, n, k = sizes
        self.steps, self.columns = -(-k // tile.k), -(-n // tile.n)
        # Tiles that are computed at the same time share rows and columns of the factors, which the cache then holds.
        order = grouped_order(-(-m // tile.m), self.columns, tile.group)
        # Two parts of a tile that one worker computes count as two: each has a slot of its own.
        split = Counter(s.job for spans in schedule for s in spans if s.end - s.begin < self.steps)
        firsts, slots = {}, 0
        for job, count in sorted(split.items()):
            firsts[job] = slots
            slots += count
        taken: Counter[int] = Counter()
        parts, part_begins, wholes, whole_begins = [], [0], [], [0]
        for spans in schedule:
            for span in spans:
                if span.job not in split:
                    wholes.append(order[span.job])
                    continue
                first = firsts[span.job]
                slot = first + taken[span.job]
                taken[span.job] += 1
                parts += [order[span.job], span.begin, span.end, slot, first, split[span.job]]
            part_begins.append(len(parts) // FIELDS)
            whole_begins.append(len(wholes))
        self.num_workers = len(schedule)
        self.tables = [
            torch.tensor(values, dtype=torch.int32, device=device)
            for values in (part_begins, parts, whole_begins, wholes)
        ]
        # Its dtype is that of all sums.
        self.slots = torch.empty(
            slots, tile.m, tile.n, dtype=torch.promote_types(dtype, torch.float32), device=device
        )
        self.arrived = torch.zeros(slots, dtype=torch.int32, device=device)
        # All that stays the same from call to call, in the kernel's order.
        self.constant = (
            self.slots, self.arrived, *self.tables, m, n, k, self.steps, self.columns,
            tile.m, tile.n, tile.k, descriptors, n % tile.n == 0, k % tile.k == 0,
            tile.halves, bool(parts), bool(wholes), FIELDS,
        )  # fmt: skip
        self.blocks = [(tile.m, tile.k), (tile.k, tile.n), (tile.m, tile.n // 2 if tile.halves else tile.n)]
        self.described: dict[int, TensorDescriptor] = {}
        self.copies: dict[int, Tensor] = {}
        self.kernels: dict[tuple[bool, ...], Any] = {}

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Multiply contiguous matrices."""
        if not self.descriptors:
            matrices = (a_MK, b_KN, c_MN)
            self._launch(matrices, tuple(matrix.data_ptr() % ALIGNMENT == 0 for matrix in matrices))
            return
        a, b, c = (self._aligned(place, matrix) for place, matrix in enumerate((a_MK, b_KN, c_MN)))
        for matrix, wider in ((a_MK, a), (b_KN, b)):
            if wider is not matrix:
                _copy_rows(matrix, wider)
        self._launch([self._descriptor(place, matrix) for place, matrix in enumerate((a, b, c))], ())
        if c is not c_MN:
            _copy_rows(c, c_MN)

    def _launch(self, matrices: Sequence[Any], aligned: tuple[bool, ...]) -> None:
        """Run the kernel; ``aligned`` is what it was compiled for."""
        grid = (self.num_workers, 1, 1)
        kernel = self.kernels.get(aligned)
        if kernel is not None:
            # Without looking at every argument's type again, which takes longer than a small product.
            kernel[grid](*matrices, *self.constant)
            return
        # None in the interpreter, which compiles nothing.
        self.kernels[aligned] = _products[grid](
            *matrices, *self.constant, num_warps=self.tile.warps, num_stages=self.tile.stages
        )

    def _aligned(self, place: int, matrix: Tensor) -> Tensor:
        """Return a matrix, or room for one in wider rows where no descriptor can name it."""
        if matrix.data_ptr() % ALIGNMENT == 0 and matrix.stride(0) * matrix.itemsize % ALIGNMENT == 0:
            return matrix
        rows, columns = matrix.shape
        if place not in self.copies:
            unit = ALIGNMENT // matrix.itemsize
            self.copies[place] = matrix.new_empty(rows, -(-columns // unit) * unit)
        # What lies beyond the matrix's own columns is neither read nor written: its descriptor ends with them.
        return self.copies[place][:, :columns]

    def _descriptor(self, place: int, matrix: Tensor) -> TensorDescriptor:
        """Return a matrix's descriptor: that of the first call with another address, since nothing else changes."""
        if place not in self.described:
            shape, strides = list(matrix.shape), list(matrix.stride())
            self.described[place] = TensorDescriptor(matrix, shape, strides, list(self.blocks[place]))
            self.described[place].base = None
        descriptor = copy(self.described[place])
        descriptor.base = matrix
        return descriptor
