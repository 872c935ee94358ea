"""Decode attention on a stream-K schedule: all cached tiles are dealt out equally, whatever sequence they belong to.

Sanovar, Bharadwaj, St. Amant, Rühle and Rajmohan, "Lean Attention: Hardware-Aware Scalable Attention Mechanism for the
Decode-Phase of Transformers", arXiv 2405.10480, 2024: softmax re-scaling as an associative reduction, and a stream-K
decomposition over all heads.

Algorithm:
1. Every (sequence, key head) is a job of ⌈context / tile⌉ tiles; all jobs lie one after another.
2. Worker w of W takes the w-th of W equal shares, which may begin and end inside jobs.
3. For its part of a job a worker computes maximum m, sum l = Σ exp(s − m), and output o = Σ exp(s − m) v.
4. Parts of one job are merged: m = max mᵢ, l = Σ lᵢ exp(mᵢ − m), o = Σ oᵢ exp(mᵢ − m) / l.

Cost: the cache is read once; at most W − 1 jobs are shared, each costs its parts' (m, l, o) once more.
Settings: by default two workers a multiprocessor, which run at the same time, and tiles of 64 keys; on CPUs, where
neither saves time, eight workers and tiles of 128.
Limits: tiles are equal except each job's last.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.decode import Part, attend_part, merge, scheduled
from paceline.families.kernels.api.problem import Problem, default_workers, use_triton
from paceline.families.kernels.api.schedules import stream_k

WORKERS_PER_MULTIPROCESSOR = 2
"""As many as shared memory holds tiles for; on an H100 one is as fast at batch 1, and two are faster at batch 4."""


@technique(
    name="lean-attention",
    family="kernels",
    implements=("attention_decode",),
    summary="decode attention, all cached tiles dealt out equally (stream-K)",
    paper="lean-attention",
    properties={"compiles": "accelerator"},
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "the abstract's method by the ledger; the paper itself was not read",
            "code": "none found by the authors",
        },
        "deviations": (
            (
                "On CPUs workers take turns in one thread, so that only the schedule and the reduction are "
                "exercised."
            ),
            (
                "On accelerators one Triton program is one worker, and a second kernel merges the jobs that are "
                "shared."
            ),
            "Tile and workers are ours, as measured on an H100.",
        ),
        "constants": {
            "tile": {"here": 0, "authors": "not public"},
            "workers": {"here": 0, "authors": "not public"},
            "backend": {"here": "auto", "authors": "none"},
            "WORKERS_PER_MULTIPROCESSOR": {"here": 2, "authors": "not public"},
        },
        "checked_by": (
            "tests/unit/test_schedules.py::test_lean_attention_is_balanced_where_a_worker_has_twenty_tiles",
            "tests/unit/test_kernel_techniques.py::test_parts_merge_in_any_order_to_the_whole",
            "tests/unit/test_triton.py::test_a_triton_kernel_is_right_in_the_interpreter",
        ),
    },
)
class LeanAttention:
    """S cached tokens of all sequences, G key heads, H heads, D width; ``tile`` or ``workers`` of 0: the default."""

    def __init__(self, problem: Problem, *, tile: int = 0, workers: int = 0, backend: str = "auto") -> None:
        on_cpu = problem.device.type == "cpu"
        self.tile = tile = tile or (128 if on_cpu else 64)
        self.workers = workers or default_workers(problem) * (1 if on_cpu else WORKERS_PER_MULTIPROCESSOR)
        self.groups = problem.integer("kv_heads")
        self.triton = (
            scheduled(problem, tile, lambda tiles: stream_k(tiles, self.workers))
            if use_triton(problem, backend)
            else None
        )

    def run(self, q_BHD: Tensor, k_SGD: Tensor, v_SGD: Tensor, offsets: Tensor, out_BHD: Tensor) -> None:
        """Attend."""
        if self.triton is not None:
            self.triton.run(q_BHD, k_SGD, v_SGD, out_BHD)
            return
        bounds = offsets.tolist()
        tiles = [-(-(b - a) // self.tile) for a, b in pairwise(bounds)]
        # A job for each key head of each sequence, in the order that ``divmod`` takes apart below.
        schedule = stream_k([t for t in tiles for _ in range(self.groups)], self.workers)
        parts: dict[int, list[Part]] = {}
        for spans in schedule:
            for span in spans:
                sequence, group = divmod(span.job, self.groups)
                first = bounds[sequence] + span.begin * self.tile
                # A job's last tile may be shorter.
                last = min(bounds[sequence] + span.end * self.tile, bounds[sequence + 1])
                # Query heads that share a key head lie one behind the other: they read its keys once.
                q_RD = q_BHD[sequence].view(self.groups, -1, q_BHD.shape[-1])[group]
                parts.setdefault(span.job, []).append(
                    attend_part(q_RD, k_SGD[first:last, group], v_SGD[first:last, group])
                )
        out_BGRD = out_BHD.view(out_BHD.shape[0], self.groups, -1, out_BHD.shape[-1])
        # Merging commutes, so it does not matter which worker had which part.
        for job, found in parts.items():
            sequence, group = divmod(job, self.groups)
            out_BGRD[sequence, group].copy_(merge(found))
