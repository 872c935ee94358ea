"""GEMM on a stream-K schedule: the multiply-accumulate steps of all output tiles are dealt out equally.

Osama, Merrill, Cecka, Garland and Owens, "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix
Multiplication on the GPU", arXiv 2301.03598, 2023.

Algorithm:
1. Every output tile (tile_m × tile_n) is a job of ⌈K / tile_k⌉ steps; all jobs lie one after another.
2. Worker w of W takes the w-th of W equal shares, which may begin and end inside jobs.
3. A tile that several workers share is the sum of their partial tiles.
On accelerators the paper's hybrid of stream-K and whole tiles: only what full rounds of W tiles leave over is shared
out like that, and all others are taken whole, W at a time, in one loop over tiles and steps. Whichever worker finishes
a shared tile's last part sums all parts, in their order. Where sharing saves no more than ``sharing_cost`` steps of the
longest worker, nothing is shared, and the schedule is that of ``persistent``: on an H100 in 16 bits that is so at most
sizes, since shared tiles cost as much as about a hundred steps. ``sharing_cost: 0`` shares wherever it saves a step.

Cost: no quantisation to whole rounds of tiles where tiles are shared; at most W − 1 tiles are summed from parts, fewer
than 2 W of them, of tile_m · tile_n float32 each, which are written and read once.
Differences from the paper: no worker waits for another's part, as a tile's owner does there; all W workers or none
share tiles, where the paper's model chooses their number; tiles are taken in groups of rows, which the cache then
holds; on CPUs workers take turns in one thread and add into the tile directly, and all tiles are shared out.
Limits: workers that share tiles are at different steps of the reduction, so that the cache serves fewer of them; small
tiles pay for Python's loop on CPUs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.gemm import scheduled_gemm
from paceline.families.kernels.api.problem import Problem, default_workers, use_triton
from paceline.families.kernels.api.schedules import stream_k, stream_k_then_whole

CPU_TILE = (256, 256, 256)


@technique(
    name="stream-k",
    family="kernels",
    implements=("gemm",),
    summary="the steps of all output tiles dealt out equally",
    properties={"compiles": "accelerator"},
)
class StreamK:
    """C (M, N) = A (M, K) · B (K, N)."""

    def __init__(
        self,
        problem: Problem,
        *,
        tile_m: int = 0,
        tile_n: int = 0,
        tile_k: int = 0,
        workers: int = 0,
        sharing_cost: int = -1,
        backend: str = "auto",
    ) -> None:
        m, n, k = (problem.integer(name) for name in "mnk")
        wanted = (tile_m, tile_n, tile_k)
        workers = workers or default_workers(problem)
        self.triton = (
            scheduled_gemm(
                problem,
                wanted,
                workers,
                lambda tiles, usual: stream_k_then_whole(
                    tiles, workers, cost=usual if sharing_cost < 0 else sharing_cost
                ),
            )
            if use_triton(problem, backend)
            else None
        )
        tile_m, tile_n, tile_k = (t or u for t, u in zip(wanted, CPU_TILE, strict=True))
        self.wide = torch.promote_types(problem.dtype, torch.float32)
        tiles = [(i, j) for i in range(0, m, tile_m) for j in range(0, n, tile_n)]
        steps = -(-k // tile_k)
        self.spans = [
            # The last tile of each axis may stick out: slices end at the matrix.
            (slice(i, i + tile_m), slice(j, j + tile_n), slice(span.begin * tile_k, span.end * tile_k))
            for worker in stream_k([steps] * len(tiles), workers)
            for span in worker
            for i, j in (tiles[span.job],)
        ]

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Multiply."""
        if self.triton is not None:
            self.triton.run(a_MK, b_KN, c_MN)
            return
        total_MN = c_MN if c_MN.dtype == self.wide else torch.empty_like(c_MN, dtype=self.wide)
        for rows, columns, depth in self.spans:
            a, b = a_MK[rows, depth].to(self.wide), b_KN[depth, columns].to(self.wide)
            # Workers take turns in order, so the span with a tile's first step comes first: it writes, later ones add.
            if depth.start == 0:
                total_MN[rows, columns] = a @ b
            else:
                total_MN[rows, columns].addmm_(a, b)
        if total_MN is not c_MN:
            c_MN.copy_(total_MN)
