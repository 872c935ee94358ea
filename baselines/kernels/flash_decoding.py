"""Decode attention with a fixed split: every sequence's cache is cut into the same number of parts.

Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context inference", 2023 (the method's first description), which
``lean-attention`` is compared with.

Algorithm: cut each (sequence, key head) into ``splits`` parts of equal length, compute (maximum, sum, output) of each
part, merge.

Cost: the cache is read once; ``splits`` partial results for every head. With ragged contexts the parts of long
sequences are long and those of short ones short, so some workers wait.
Limits: the number of parts is one for all sequences.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.decode import attend_part, merge, scheduled
from paceline.families.kernels.api.problem import Problem, use_triton
from paceline.families.kernels.api.schedules import each_split


@technique(
    name="flash-decoding",
    family="kernels",
    implements=("attention_decode",),
    summary="decode attention, every cache cut into the same number of parts",
    properties={"compiles": "accelerator"},
)
class FlashDecoding:
    """S cached tokens of all sequences, G key heads, H heads, D width."""

    def __init__(self, problem: Problem, *, splits: int = 4, tile: int = 64, backend: str = "auto") -> None:
        self.splits = splits
        self.groups = problem.integer("kv_heads")
        self.triton = (
            scheduled(problem, tile, lambda tiles: each_split(tiles, splits))
            if use_triton(problem, backend)
            else None
        )

    def run(self, q_BHD: Tensor, k_SGD: Tensor, v_SGD: Tensor, offsets: Tensor, out_BHD: Tensor) -> None:
        """Attend."""
        if self.triton is not None:
            self.triton.run(q_BHD, k_SGD, v_SGD, out_BHD)
            return
        width = q_BHD.shape[-1]
        for sequence, (begin, end) in enumerate(pairwise(offsets.tolist())):
            # Rounded up, so a short cache may give fewer parts than ``splits``, but no empty one.
            size = -(-(end - begin) // self.splits)
            q_GRD = q_BHD[sequence].view(self.groups, -1, width)
            out_GRD = out_BHD[sequence].view(self.groups, -1, width)
            for group in range(self.groups):
                cuts = [(a, min(a + size, end)) for a in range(begin, end, size)]
                # Workers take turns on a CPU: the split changes rounding here, not time.
                parts = [attend_part(q_GRD[group], k_SGD[a:b, group], v_SGD[a:b, group]) for a, b in cuts]
                out_GRD[group].copy_(merge(parts))
