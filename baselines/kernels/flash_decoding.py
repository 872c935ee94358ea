"""Decode attention with a fixed split: every sequence's cache is cut into the same number of parts.

Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context inference", 2023 (the method's first description), which
``lean-attention`` is compared with.

Algorithm: cut each (sequence, key head) into ``splits`` parts of equal length, compute (maximum, sum, output) of each
part, merge.

The number of splits decides how good this is, so it has a real choice on accelerators:
- by default FlashAttention-3's heuristic chooses it: as few as fill the multiprocessors;
- ``tuned: true`` measures 1, 2, 4, … 128 splits and the heuristic's on the problem's own shapes while the instance is
  made, and keeps the fastest: the strongest fixed split there is, and the fair opponent of a schedule without one.

Cost: the cache is read once; ``splits`` partial results for every head. With ragged contexts the parts of long
sequences are long and those of short ones short, so some workers wait.
Limits: the number of parts is one for all sequences. On CPUs workers take turns, so a split changes rounding but saves
no time: there it is 4 unless ``splits`` says otherwise, and nothing is measured.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.decode import attend_part, fastest, job_tiles, merge, scheduled
from paceline.families.kernels.api.problem import Problem, default_workers, use_triton
from paceline.families.kernels.api.schedules import each_split, occupying_splits

CPU_SPLITS = 4
MOST_SPLITS = 128
"""As many as FlashAttention tries."""


@technique(
    name="flash-decoding",
    family="kernels",
    implements=("attention_decode",),
    summary="decode attention, every cache cut into the same number of parts",
    properties={"compiles": "accelerator"},
    fidelity={
        "source": {
            "read": "reimplementation",
            "paper": "the method's first description by the header, not read for this card",
            "code": "FlashAttention's num_splits_heuristic, read in another's copy of flash_api.cpp",
        },
        "deviations": (
            (
                "Lengths may differ, and the number of parts is one for all; FlashAttention pads them to the "
                "longest."
            ),
            (
                "Workers are the device's multiprocessors; FlashAttention-2 counts twice as many, for its small "
                "blocks."
            ),
            "``tuned`` is ours.",
            "On CPUs there are 4 parts, which save no time there.",
        ),
        "constants": {
            "splits": {"here": 0, "authors": "0: the heuristic"},
            "tuned": {"here": False, "authors": "none"},
            "tile": {"here": 64, "authors": "256, 128 or 64 keys, by the head's width"},
            "backend": {"here": "auto", "authors": "none"},
            "CPU_SPLITS": {"here": 4, "authors": "none"},
            "MOST_SPLITS": {
                "here": 128,
                "authors": "128",
                "official": 128,
                "source": "github.com/Dao-AILab/flash-attention: csrc/flash_attn/flash_api.cpp",
            },
        },
        "checked_by": (
            "tests/unit/test_schedules.py::test_a_split_fills_the_workers_and_no_more",
            "tests/unit/test_kernel_techniques.py::test_a_split_is_timed_on_the_problem_itself_and_the_fastest_is_kept",
            "tests/unit/test_triton.py::test_a_triton_kernel_is_right_in_the_interpreter",
        ),
    },
)
class FlashDecoding:
    """S cached tokens of all sequences, G key heads, H heads, D width; ``splits`` of 0 leaves the choice to it."""

    def __init__(
        self, problem: Problem, *, splits: int = 0, tuned: bool = False, tile: int = 64, backend: str = "auto"
    ) -> None:
        self.groups = problem.integer("kv_heads")
        self.triton = None
        self.splits = splits or CPU_SPLITS
        if use_triton(problem, backend):
            self.splits, self.triton = self._choose(problem, splits, tuned, tile)

    @staticmethod
    def _choose(problem: Problem, splits: int, tuned: bool, tile: int) -> tuple[int, Any]:
        """Return the number of splits and the kernels for it."""
        tiles = job_tiles(problem, tile)
        chosen = splits or occupying_splits(len(tiles), max(tiles), default_workers(problem))

        def kernels(number: int) -> Any:
            return scheduled(problem, tile, lambda jobs: each_split(jobs, number))

        if not tuned:
            return chosen, kernels(chosen)
        doubled = {1 << power for power in range(MOST_SPLITS.bit_length())}
        # More parts than tiles are no other split.
        numbers = sorted(n for n in doubled | {chosen} if n <= max(tiles))
        made = {number: kernels(number) for number in numbers}
        chosen = fastest(problem, made)
        return chosen, made[chosen]

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
