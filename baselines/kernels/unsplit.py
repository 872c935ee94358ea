"""Decode attention without a split: one worker reads a head's whole cache.

Algorithm: for every (sequence, key head) one softmax over all keys: what a prefill kernel does when it is given one
query. The baseline of split decoding.

Cost: the cache is read once. Workers are batch × key heads, so a small batch leaves most of a GPU idle, and the longest
sequence decides when the last one ends.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.decode import attend_part, merge, scheduled
from paceline.families.kernels.api.problem import Problem, use_triton
from paceline.families.kernels.api.schedules import one_each


@technique(
    name="unsplit",
    family="kernels",
    implements=("attention_decode",),
    summary="decode attention, one worker for each head's whole cache",
    properties={"compiles": "accelerator"},
)
class Unsplit:
    """S cached tokens of all sequences, G key heads, H heads, D width."""

    def __init__(self, problem: Problem, *, tile: int = 64, backend: str = "auto") -> None:
        self.groups = problem.integer("kv_heads")
        self.triton = scheduled(problem, tile, one_each) if use_triton(problem, backend) else None

    def run(self, q_BHD: Tensor, k_SGD: Tensor, v_SGD: Tensor, offsets: Tensor, out_BHD: Tensor) -> None:
        """Attend."""
        if self.triton is not None:
            self.triton.run(q_BHD, k_SGD, v_SGD, out_BHD)
            return
        width = q_BHD.shape[-1]
        for sequence, (begin, end) in enumerate(pairwise(offsets.tolist())):
            q_GRD = q_BHD[sequence].view(self.groups, -1, width)
            out_GRD = out_BHD[sequence].view(self.groups, -1, width)
            for group in range(self.groups):
                part = attend_part(q_GRD[group], k_SGD[begin:end, group], v_SGD[begin:end, group])
                # Merging one part only divides by its sum: the same arithmetic as the
                # split techniques, without a split.
                out_GRD[group].copy_(merge([part]))
