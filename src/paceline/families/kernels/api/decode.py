"""Parts of a softmax-weighted sum, and how they merge: what split decode attention rests on.

The triple (m, l, o) of maximum, sum of exponentials and weighted sum, both relative to m, forms a commutative monoid:
parts may be merged in any order. Source: Milakov and Gimelshein, arXiv 1805.02867, section 3.1; Sanovar et al.,
arXiv 2405.10480.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from paceline.families.kernels.api.accelerated import triton_kernel
from paceline.families.kernels.api.context_lengths import context_lengths
from paceline.families.kernels.api.problem import Problem
from paceline.families.kernels.api.schedules import Schedule


@dataclass(frozen=True, slots=True)
class Part:
    """What some keys contribute to R queries of width D."""

    m_R: Tensor
    l_R: Tensor
    o_RD: Tensor


def attend_part(q_RD: Tensor, k_SD: Tensor, v_SD: Tensor) -> Part:
    """Attend to some keys; scores are q·k / √D, taken in float32 or wider.

    q_RD: (R, D); k_SD and v_SD: (S, D) with S at least 1. The part's tensors are in that wider dtype.
    """
    wide = torch.promote_types(q_RD.dtype, torch.float32)
    scores_RS = q_RD.to(wide) @ k_SD.to(wide).T * q_RD.shape[-1] ** -0.5
    m_R = scores_RS.amax(dim=-1)
    # In the scores' memory, relative to the part's own maximum: no exponent is positive.
    p_RS = torch.exp_(scores_RS.sub_(m_R[:, None]))
    return Part(m_R, p_RS.sum(dim=-1), p_RS @ v_SD.to(wide))


def merge(parts: Sequence[Part]) -> Tensor:
    """Return the attention output (R, D) of all parts together, in the parts' dtype; there is at least one part."""
    if len(parts) == 1:
        # Nothing to rescale: all of the softmax is relative to one maximum.
        return parts[0].o_RD / parts[0].l_R[:, None]
    m_PR = torch.stack([p.m_R for p in parts])
    # At most 1: parts with a lower maximum are scaled down to the highest, never up.
    weight_PR = torch.exp(m_PR - m_PR.amax(dim=0))
    l_R = (weight_PR * torch.stack([p.l_R for p in parts])).sum(dim=0)
    o_RD = (weight_PR[:, :, None] * torch.stack([p.o_RD for p in parts])).sum(dim=0)
    return o_RD / l_R[:, None]


def scheduled(problem: Problem, tile: int, schedule: Callable[[list[int]], Schedule]) -> Any:
    """Return the Triton kernels of decode attention on a schedule of tiles; its ``run`` takes q, k, v and the output.

    Lengths are known on the host, as in a serving engine, so that no call waits for the device to tell them.

    Args:
        problem: Its parameters give lengths and heads.
        tile: Keys of a tile.
        schedule: Deals out the tiles of all jobs (sequence · key heads + key head), given as one count for each job.

    Raises:
        ImportError: Triton is missing.
    """
    return triton_kernel("triton_decode", "SplitDecode")(
        schedule(job_tiles(problem, tile)),
        context_lengths(problem.params),
        tile=tile,
        heads=problem.integer("heads"),
        groups=problem.integer("kv_heads"),
        width=problem.integer("head_dim"),
        dtype=problem.dtype,
        device=problem.device,
    )


def job_tiles(problem: Problem, tile: int) -> list[int]:
    """Return the tiles of every job (sequence · key heads + key head), each of ``tile`` keys but a job's last."""
    lengths = context_lengths(problem.params)
    return [-(-length // tile) for length in lengths for _ in range(problem.integer("kv_heads"))]


TRIALS, CALLS_PER_TRIAL = 5, 5


def duration(call: Callable[[], None], device: torch.device) -> float:
    """Return the seconds of a call: the median of some trials, after one that is not counted.

    On accelerators events of the device take the time of several calls in a row, which hides what a launch costs the
    host as long as a call takes longer than that.
    """
    accelerator = None if device.type == "cpu" else getattr(torch, device.type)
    found = []
    for _ in range(TRIALS + 1):
        if accelerator is None:
            begin_s = perf_counter()
            call()
            found.append(perf_counter() - begin_s)
            continue
        begin, end = (accelerator.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(CALLS_PER_TRIAL):
            call()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3 / CALLS_PER_TRIAL)
    # The first trial compiles.
    return median(found[1:])


def fastest(problem: Problem, candidates: Mapping[int, Any]) -> int:
    """Return the key of the candidate that decodes the problem's batch fastest, on caches of random numbers.

    For instances that are being made: it takes the memory of the caches for as long as it runs, and time that no call
    is charged for. Of equally fast candidates the first wins.

    Args:
        problem: Gives the shapes.
        candidates: Objects with ``run``, as ``scheduled`` returns them, each under its setting.
    """
    batch, heads, width = (problem.integer(name) for name in ("batch", "heads", "head_dim"))
    q_BHD, out_BHD = (problem.empty(batch, heads, width).normal_() for _ in range(2))
    tokens = sum(context_lengths(problem.params))
    k_SGD, v_SGD = (problem.empty(tokens, problem.integer("kv_heads"), width).normal_() for _ in range(2))
    seconds = {
        key: duration(partial(candidate.run, q_BHD, k_SGD, v_SGD, out_BHD), problem.device)
        for key, candidate in candidates.items()
    }
    return min(seconds, key=seconds.__getitem__)
