"""GEMM with the reduction cut into equal parts that are summed at the end.

Algorithm: C = Σᵢ A[:, kᵢ] · B[kᵢ, :] over ``splits`` slices kᵢ of the reduction; partial products in float32.

Cost: more workers when m·n gives few tiles; ``splits`` partial results of m·n elements are written and read. On
accelerators whichever worker finishes a tile's last part sums all of them, in their order.
Limits: without a lack of output tiles it only adds traffic.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.gemm import scheduled_gemm
from paceline.families.kernels.api.problem import Problem, default_workers, use_triton
from paceline.families.kernels.api.schedules import each_split


@technique(
    name="split-k",
    family="kernels",
    implements=("gemm",),
    summary="the reduction cut into equal parts",
    properties={"compiles": "accelerator"},
)
class SplitK:
    """C (M, N) = A (M, K) · B (K, N)."""

    def __init__(
        self,
        problem: Problem,
        *,
        splits: int = 4,
        tile_m: int = 0,
        tile_n: int = 0,
        tile_k: int = 0,
        backend: str = "auto",
    ) -> None:
        self.triton = (
            scheduled_gemm(
                problem,
                (tile_m, tile_n, tile_k),
                default_workers(problem),
                lambda tiles, _: each_split(tiles, splits),
            )
            if use_triton(problem, backend)
            else None
        )
        self.size = max(-(-problem.integer("k") // splits), 1)
        self.wide = torch.promote_types(problem.dtype, torch.float32)

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Multiply."""
        if self.triton is not None:
            self.triton.run(a_MK, b_KN, c_MN)
            return
        # Partial products are summed in float32 at least: each rounding to 16 bits would add to the error.
        total_MN = c_MN if c_MN.dtype == self.wide else torch.empty_like(c_MN, dtype=self.wide)
        for begin in range(0, a_MK.shape[1], self.size):
            a, b = a_MK[:, begin : begin + self.size], b_KN[begin : begin + self.size]
            if self.wide != a.dtype:
                a, b = a.to(self.wide), b.to(self.wide)
            if begin == 0:
                # The first slice writes, since the output holds nothing that may be added to.
                torch.mm(a, b, out=total_MN)
            else:
                total_MN.addmm_(a, b)
        if total_MN is not c_MN:
            c_MN.copy_(total_MN)
