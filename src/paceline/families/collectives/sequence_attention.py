"""Softmax attention over a split sequence: ``run(q_TGD, k_THD, v_THD, out_TGD, lse_TG)``.

T tokens of this rank, G query heads, H key/value heads (G a multiple of H), D width. Every query attends to the keys of
all ranks (no mask); ``lse_TG`` receives the logarithm of the softmax denominator. ``attend`` and ``merge`` are the
parts that need no communication; with a mask they also serve training, where R = G / H query heads share a key head.
Source: Ring Attention (arXiv 2310.01889); TokenRing (arXiv 2412.20501), section 3; merging by log-sum-exp after
FlashAttention (arXiv 2205.14135), section 3.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.families.collectives.operation import Instance, Role, approximate
from paceline.families.collectives.payloads import draw
from paceline.families.collectives.problem import Problem


def scores(q_TGD: Tensor, k_SHD: Tensor, *, causal: bool = False) -> Tensor:
    """Return scaled products (H, R, T, S); of causal attention −∞ where a key comes after the query's token."""
    tokens, query_heads, width = q_TGD.shape
    heads = k_SHD.shape[1]
    q_THRD = q_TGD.view(tokens, heads, query_heads // heads, width)
    scores_HRTS: Tensor = torch.einsum("thrd,shd->hrts", q_THRD, k_SHD) * width**-0.5
    if causal:
        later_TS = torch.ones(scores_HRTS.shape[2:], dtype=torch.bool, device=q_TGD.device).triu_(1)
        scores_HRTS.masked_fill_(later_TS, -math.inf)
    return scores_HRTS


def attend(q_TGD: Tensor, k_SHD: Tensor, v_SHD: Tensor, *, causal: bool = False) -> tuple[Tensor, Tensor]:
    """Return the attention output (T, G, D) over these keys only, and its log-sum-exp (T, G)."""
    tokens, query_heads, width = q_TGD.shape
    scores_HRTS = scores(q_TGD, k_SHD, causal=causal)
    lse_HRT = torch.logsumexp(scores_HRTS, dim=-1)
    weights_HRTS = torch.exp(scores_HRTS - lse_HRT.unsqueeze(-1))
    out_THRD = torch.einsum("hrts,shd->thrd", weights_HRTS, v_SHD)
    lse_TG = lse_HRT.permute(2, 0, 1).reshape(tokens, query_heads)
    return out_THRD.reshape(tokens, query_heads, width).contiguous(), lse_TG.contiguous()


def merge(out_TGD: Tensor, lse_TG: Tensor, other_TGD: Tensor, other_lse_TG: Tensor) -> None:
    """Fold the result over further keys into ``out_TGD`` and ``lse_TG``, in place."""
    total_TG = torch.logaddexp(lse_TG, other_lse_TG)
    out_TGD.mul_((lse_TG - total_TG).exp().unsqueeze(-1))
    out_TGD.add_(other_TGD * (other_lse_TG - total_TG).exp().unsqueeze(-1))
    lse_TG.copy_(total_TG)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceAttention:
    """The operation ``sequence_attention``."""

    name: str = "sequence_attention"
    buffers: tuple[str, ...] = ("q_TGD", "k_THD", "v_THD", "out_TGD", "lse_TG")
    roles: tuple[Role, ...] = ("in", "in", "in", "out", "out")
    scalable: bool = False

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (T, G, D), (T, H, D) twice, (T, G, D) and (T, G)."""
        tokens, width = problem.integer("tokens"), problem.integer("head_dim")
        query_heads, heads = problem.integer("heads"), problem.integer("kv_heads")
        queries, keys = (tokens, query_heads, width), (tokens, heads, width)
        return (queries, keys, keys, queries, (tokens, query_heads))

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw the whole sequence, attend in float64, and keep this rank's queries."""
        shapes = self.shapes(problem)
        tokens, size, rank = shapes[0][0], problem.world_size, problem.rank

        def shared(salt: int, shape: tuple[int, ...]) -> Tensor:
            count = size * shape[0] * shape[1] * shape[2]
            values = draw("gaussian", count, seed=seed + salt, rank=0, world_size=1, dtype=torch.float64)
            return values.view(size * shape[0], *shape[1:]).to(problem.dtype).to(problem.device)

        q, k, v = shared(1, shapes[0]), shared(2, shapes[1]), shared(3, shapes[2]) * magnitude
        mine = slice(rank * tokens, (rank + 1) * tokens)
        out, lse = attend(q[mine].double(), k.double(), v.double())
        naive_out, naive_lse = attend(q[mine], k, v)
        alone_out, alone_lse = attend(q[mine].double(), k[mine].double(), v[mine].double())
        nothing = (None, None, None)
        return Instance(
            arguments=(q[mine], k[mine], v[mine], None, None),
            expected=(*nothing, approximate(out, naive_out), approximate(lse, naive_lse)),
            wrong=(
                ("skipped-rank", (*nothing, alone_out, alone_lse)),
                ("swapped-tokens", (*nothing, out.roll(1, dims=0), lse.roll(1, dims=0))),
            ),
        )
