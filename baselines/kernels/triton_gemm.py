"""Triton kernel of scheduled matrix products: ``split-k``, ``stream-k``, ``persistent`` differ in their schedules only.

A worker's span covers some steps of one output tile. A span that covers all of them writes the tile; others add into a
float32 workspace, from which a second kernel writes the tiles that are shared.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from paceline.families.kernels.api.schedules import Schedule


@triton.jit
def _spans(
    a, b, c, workspace, worker_begin, span_job, span_first, span_last, M, N, K, steps, columns,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    worker = tl.program_id(0)
    for span in range(tl.load(worker_begin + worker), tl.load(worker_begin + worker + 1)):
        job = tl.load(span_job + span)
        first, last = tl.load(span_first + span), tl.load(span_last + span)
        # 64 bits: M · N may exceed 2³¹.
        row = (job // columns * TILE_M + tl.arange(0, TILE_M)).to(tl.int64)
        column = (job % columns * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
        total = tl.zeros((TILE_M, TILE_N), tl.float32)
        for step in range(first, last):
            depth = step * TILE_K + tl.arange(0, TILE_K)
            a_tile = tl.load(
                a + row[:, None] * K + depth[None, :],
                mask=(row[:, None] < M) & (depth[None, :] < K),
                other=0.0,
            )
            b_tile = tl.load(
                b + depth[:, None].to(tl.int64) * N + column[None, :],
                mask=(depth[:, None] < K) & (column[None, :] < N),
                other=0.0,
            )
            # "ieee" keeps float32 factors whole: tensor cores would take them with ten bits of fraction (TF32).
            total = tl.dot(a_tile, b_tile, total, input_precision="ieee")
        place = row[:, None] * N + column[None, :]
        inside = (row[:, None] < M) & (column[None, :] < N)
        # Nobody else works on this tile.
        if last - first == steps:
            tl.store(c + place, total.to(c.dtype.element_ty), mask=inside)
        else:
            # Workers of a tile finish in any order, so its last bits may differ from call to call.
            tl.atomic_add(workspace + place, total, mask=inside)


@triton.jit
def _finish(workspace, c, shared, M, N, columns, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    job = tl.load(shared + tl.program_id(0))
    row = (job // columns * TILE_M + tl.arange(0, TILE_M)).to(tl.int64)
    column = (job % columns * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
    place = row[:, None] * N + column[None, :]
    inside = (row[:, None] < M) & (column[None, :] < N)
    total = tl.load(workspace + place, mask=inside, other=0.0)
    tl.store(c + place, total.to(c.dtype.element_ty), mask=inside)
    # Back to zero for the next call, tile by tile: cheaper than clearing the whole workspace.
    tl.store(workspace + place, tl.zeros_like(total), mask=inside)


class ScheduledGemm:
    """C (M, N) = A (M, K) · B (K, N) on a schedule of steps over output tiles, row by row."""

    def __init__(
        self,
        schedule: Schedule,
        sizes: tuple[int, int, int],
        tiles: tuple[int, int, int],
        device: torch.device,
    ) -> None:
        self.sizes, self.tiles = sizes, tiles
        self.steps = -(-sizes[2] // tiles[2])
        self.columns = -(-sizes[1] // tiles[1])
        spans = [span for worker in schedule for span in worker]
        begins = [0]
        for worker in schedule:
            begins.append(begins[-1] + len(worker))
        # Most tiles have one worker and never see the workspace: under stream-K at most W − 1 are shared.
        shared = sorted({s.job for s in spans if s.end - s.begin < self.steps})

        def table(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int32, device=device)

        self.tables = [
            table(begins), table([s.job for s in spans]), table([s.begin for s in spans]), table([s.end for s in spans])
        ]  # fmt: skip
        self.num_workers, self.shared = len(schedule), table(shared)
        self.workspace = torch.zeros(sizes[:2] if shared else (1, 1), device=device)

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Multiply contiguous matrices."""
        m, n, k = self.sizes
        tile_m, tile_n, tile_k = self.tiles
        warps = 8 if tile_m * tile_n >= 128 * 128 else 4
        _spans[(self.num_workers,)](
            a_MK, b_KN, c_MN, self.workspace, *self.tables, m, n, k, self.steps, self.columns,
            TILE_M=tile_m, TILE_N=tile_n, TILE_K=tile_k, num_warps=warps, num_stages=3,
        )  # fmt: skip
        if len(self.shared):
            _finish[(len(self.shared),)](
                self.workspace, c_MN, self.shared, m, n, self.columns, TILE_M=tile_m, TILE_N=tile_n
            )
