"""How matrix products are cut into tiles: sizes, their order, and who predicts what they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmTile:
    """What a Triton kernel computes at once, and how."""

    m: int
    """Rows of an output tile."""
    n: int
    """Columns of an output tile."""
    k: int
    """Steps of the reduction that are multiplied at once."""
    warps: int = 8
    """Warps of a worker; four of them make a group that a Hopper tensor-core instruction takes."""
    stages: int = 3
    """Tiles of factors in flight."""
    group: int = 8
    """Rows of tiles that are taken together, column by column."""
    halves: bool = False
    """Write a tile in two halves: half the buffer, which leaves room for another stage."""


SHAPES_16_BIT: tuple[tuple[int, int, int], ...] = (
    (128, 256, 64),
    (128, 128, 64),
    (128, 128, 32),
    (64, 128, 128),
    (64, 64, 128),
    (64, 32, 128),
)
"""Rows, columns and steps, from the shape that loads least per product to the one of which there are most."""
SHAPES_32_BIT: tuple[tuple[int, int, int], ...] = ((128, 128, 32), (128, 128, 16), (64, 64, 32), (32, 64, 32))
FEW_ROWS = 16
"""Rows of the smallest product of tensor cores."""
SHAPES_OF_FEW_ROWS: tuple[tuple[int, int, int], ...] = (
    (FEW_ROWS, 128, 128),
    (FEW_ROWS, 64, 128),
    (FEW_ROWS, 128, 32),
)
LEAST_STAGES, MOST_STAGES = 3, 4
SPARE_BYTES = 1024
"""Of shared memory, for barriers and counters."""
LARGE_BYTES = 64 * 1024
"""An output tile of so many bytes is written in halves and computed by eight warps, others by four."""
LOAD_COST = 36
"""Products that a worker could make while it loads one element; measured on an H100 with tiles of 16 bits."""
LEAST_COST_16_BIT, LEAST_COST = 64 * 18_000, 64 * 1_000
"""Products that a worker could make in the shortest time of a step, which is that of a load."""


def gemm_tile(
    sizes: tuple[int, int, int],
    wanted: tuple[int, int, int],
    *,
    workers: int,
    itemsize: int,
    shared_bytes: int,
    deepest: int = 128,
    through_registers: bool = False,
) -> GemmTile:
    """Choose a tile for a product: the one whose rounds of workers take least time.

    Args:
        sizes: M, N and K.
        wanted: Rows, columns and steps that somebody has asked for; 0 where they are free.
        workers: That compute tiles at the same time.
        itemsize: Bytes of an element.
        shared_bytes: Shared memory that a worker may have.
        deepest: Most steps in a tile that nobody has asked for; loads through pointers run out of registers.
        through_registers: Factors reach shared memory through registers, which hold one stage, and results of 16 bits
            do not pass through it: AMD's way.
    """
    m, n, k = sizes
    listed = SHAPES_OF_FEW_ROWS if m <= FEW_ROWS else SHAPES_16_BIT if itemsize <= 2 else SHAPES_32_BIT
    shapes = [(rows, columns, min(depth, deepest)) for rows, columns, depth in listed]
    least = LEAST_COST_16_BIT if itemsize <= 2 else LEAST_COST

    def stages(shape: tuple[int, int, int]) -> int:
        rows, columns, depth = shape
        written = rows * columns * itemsize
        # A kernel in halves writes one after the other.
        free = shared_bytes - SPARE_BYTES - (written // 2 if written >= LARGE_BYTES else written)
        stage = (rows + columns) * depth * itemsize
        if through_registers:
            return 1 + (shared_bytes if itemsize <= 2 else free) // stage
        return free // stage

    def cost(shape: tuple[int, int, int]) -> tuple[int, int]:
        rows, columns, depth = shape
        rounds = -(-(-(-m // rows) * -(-n // columns)) // workers)
        step = max((rows * columns + LOAD_COST * (rows + columns)) * depth, least)
        # Of tiles that take equally long the smaller: more workers load.
        return rounds * -(-k // depth) * step, rows * columns

    fitting = [shape for shape in shapes if stages(shape) >= LEAST_STAGES] or [shapes[-1]]
    chosen = min(fitting, key=cost)
    rows, columns, depth = (asked or usual for asked, usual in zip(wanted, chosen, strict=True))
    large = rows * columns * itemsize >= LARGE_BYTES
    return GemmTile(
        m=rows,
        n=columns,
        k=depth,
        warps=8 if large else 4,
        stages=min(max(stages((rows, columns, depth)), 2), MOST_STAGES),
        halves=large,
    )


def grouped_order(rows: int, columns: int, group: int) -> list[int]:
    """Return the numbers of a grid's tiles, counted row by row, in the order in which they are best computed.

    Tiles that run at the same time should share as many rows and columns of the factors as they can: ``group`` rows are
    taken together, column by column, so that W tiles need about W / group columns and ``group`` rows.

    Args:
        rows: Rows of tiles.
        columns: Columns of tiles.
        group: Rows that are taken together.
    """
    return [
        row * columns + column
        for first in range(0, rows, group)
        for column in range(columns)
        for row in range(first, min(first + group, rows))
    ]


class TimePredictor(Protocol):
    """A technique of ``tile_choice``: ``T(problem, **options)``.

    Columns of features, F = 10: ``m``, ``n`` and ``k`` of the product, ``tile_m``, ``tile_n`` and ``tile_k``, tiles of
    the result, products of tiles, bytes of a tile's factors and result, and floating-point operations.
    """

    def fit(self, features_NF: NDArray[np.float64], times_N: NDArray[np.float64]) -> None:
        """Learn from N products that were measured: features (N, F), times (N,) in seconds."""

    def predict(self, features_NF: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the times (N,) in seconds of products that were held out: features (N, F)."""
