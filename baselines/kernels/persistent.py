"""GEMM by as many workers as the device has multiprocessors, each of which takes one output tile after another.

Algorithm: output tiles are handed out whole, in order, to a fixed number of workers that stay: launch overhead and
prologue are paid once for each worker instead of once for each tile. The loops over tiles and over steps are one, so
that a tile's first factors are on their way while the tile before is written. The order of tiles goes through groups of
rows, column by column, so that tiles that are computed at the same time share factors in the cache.

Cost: that of a tiled product; the last round of tiles may leave workers idle (wave quantisation), which ``stream-k``
avoids.
Differences between devices: Hopper and later load and store whole tiles through descriptors, other accelerators through
pointers; on CPUs one worker takes all tiles.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.gemm import scheduled_gemm
from paceline.families.kernels.api.problem import Problem, default_workers, use_triton
from paceline.families.kernels.api.schedules import fixed_split

# Of the whole depth: on a CPU a tile is one product of the library, which blocks the reduction itself.
CPU_TILE = (256, 256)


@technique(
    name="persistent",
    family="kernels",
    implements=("gemm",),
    summary="a fixed number of workers takes one output tile after another",
    properties={"compiles": "accelerator"},
)
class Persistent:
    """C (M, N) = A (M, K) · B (K, N)."""

    def __init__(
        self,
        problem: Problem,
        *,
        tile_m: int = 0,
        tile_n: int = 0,
        tile_k: int = 0,
        workers: int = 0,
        backend: str = "auto",
    ) -> None:
        workers = workers or default_workers(problem)
        # One part for each job: whole tiles, to whichever worker is free first.
        self.triton = (
            scheduled_gemm(
                problem, (tile_m, tile_n, tile_k), workers, lambda tiles, _: fixed_split(tiles, workers, 1)
            )
            if use_triton(problem, backend)
            else None
        )
        self.tile_m, self.tile_n = tile_m or CPU_TILE[0], tile_n or CPU_TILE[1]
        self.wide = torch.promote_types(problem.dtype, torch.float32)

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Multiply."""
        if self.triton is not None:
            self.triton.run(a_MK, b_KN, c_MN)
            return
        for i in range(0, a_MK.shape[0], self.tile_m):
            # Converted once for a row of tiles.
            a = a_MK[i : i + self.tile_m].to(self.wide)
            for j in range(0, b_KN.shape[1], self.tile_n):
                c_MN[i : i + self.tile_m, j : j + self.tile_n] = a @ b_KN[:, j : j + self.tile_n].to(
                    self.wide
                )
