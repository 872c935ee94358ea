"""Parts of a softmax-weighted sum, and how they merge: what split decode attention rests on.

The triple (m, l, o) of maximum, sum of exponentials and weighted sum, both relative to m, forms a commutative monoid:
parts may be merged in any order. Source: Milakov and Gimelshein, arXiv 1805.02867, section 3.1; Sanovar et al.,
arXiv 2405.10480.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    lengths = context_lengths(problem.params)
    groups = problem.integer("kv_heads")
    # A job for each key head of each sequence, in the order of ``SplitDecode``.
    tiles = [-(-length // tile) for length in lengths for _ in range(groups)]
    return triton_kernel("triton_decode", "SplitDecode")(
        schedule(tiles),
        lengths,
        tile=tile,
        heads=problem.integer("heads"),
        groups=groups,
        width=problem.integer("head_dim"),
        device=problem.device,
    )
