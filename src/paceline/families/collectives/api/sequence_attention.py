"""Softmax attention over a split sequence: ``run(q_TGD, k_THD, v_THD, out_TGD, lse_TG)``.

T tokens of this rank, G query heads, H key/value heads (G a multiple of H), D width. Every query attends to the keys of
all ranks (no mask); ``lse_TG`` receives the logarithm of the softmax denominator. ``attend`` and ``merge`` are the
parts that need no communication; with a mask they also serve training, where R = G / H query heads share a key head.
Source: Ring Attention (arXiv 2310.01889); TokenRing (arXiv 2412.20501), section 3; merging by log-sum-exp after
FlashAttention (arXiv 2205.14135), section 3.1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def scores(q_TGD: Tensor, k_SHD: Tensor, *, causal: bool = False) -> Tensor:
    """Return products q·k / √D, (H, R, T, S); of causal attention −∞ where a key comes after the query's token.

    q_TGD: (T, G, D); k_SHD: (S, H, D), of one floating dtype, which the result has too.
    """
    tokens, query_heads, width = q_TGD.shape
    heads = k_SHD.shape[1]
    q_THRD = q_TGD.view(tokens, heads, query_heads // heads, width)
    scores_HRTS: Tensor = torch.einsum("thrd,shd->hrts", q_THRD, k_SHD) * width**-0.5
    if causal:
        later_TS = torch.ones(scores_HRTS.shape[2:], dtype=torch.bool, device=q_TGD.device).triu_(1)
        # Row t keeps keys 0 to t, so that no softmax is over nothing (and no NaN comes of −∞ − −∞).
        scores_HRTS.masked_fill_(later_TS, -math.inf)
    return scores_HRTS


def attend(q_TGD: Tensor, k_SHD: Tensor, v_SHD: Tensor, *, causal: bool = False) -> tuple[Tensor, Tensor]:
    """Return the attention output (T, G, D) over these keys only, and its log-sum-exp (T, G).

    q_TGD: (T, G, D); k_SHD and v_SHD: (S, H, D), S at least 1, of one floating dtype, which the results have too.
    """
    tokens, query_heads, width = q_TGD.shape
    scores_HRTS = scores(q_TGD, k_SHD, causal=causal)
    lse_HRT = torch.logsumexp(scores_HRTS, dim=-1)
    # At most 1, since the log-sum-exp is no less than any score: no overflow, and no second division by the sum.
    weights_HRTS = torch.exp(scores_HRTS - lse_HRT.unsqueeze(-1))
    out_THRD = torch.einsum("hrts,shd->thrd", weights_HRTS, v_SHD)
    lse_TG = lse_HRT.permute(2, 0, 1).reshape(tokens, query_heads)
    return out_THRD.reshape(tokens, query_heads, width).contiguous(), lse_TG.contiguous()


def merge(out_TGD: Tensor, lse_TG: Tensor, other_TGD: Tensor, other_lse_TG: Tensor) -> None:
    """Fold the result over further keys into ``out_TGD`` (T, G, D) and ``lse_TG`` (T, G), in place.

    With l = logaddexp(lse, lse'): out = out · exp(lse − l) + out' · exp(lse' − l), and lse = l.
    """
    # Both factors below are at most 1 and sum to 1, so merging neither overflows nor needs the unnormalised output.
    total_TG = torch.logaddexp(lse_TG, other_lse_TG)
    out_TGD.mul_((lse_TG - total_TG).exp().unsqueeze(-1))
    out_TGD.add_(other_TGD * (other_lse_TG - total_TG).exp().unsqueeze(-1))
    lse_TG.copy_(total_TG)
