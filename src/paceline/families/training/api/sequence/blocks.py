"""Causal attention of one rank's queries to one rank's keys, run by run: what ring techniques do between messages.

Two runs of positions are one and the same, or one comes wholly before the other: what nobody sees is never computed.

Shape suffixes: t positions of queries, s of keys, M heads of the queries of all sequences, N of keys and values,
R = M / N, K width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from paceline.families.collectives.api.sequence_attention import attend, merge, scores
from paceline.families.training.api.sequence.layout import Runs

__all__ = ["attend_to", "gradients", "merge"]


def attend_to(
    q_tMK: Tensor, k_sNK: Tensor, v_sNK: Tensor, q_runs: Runs, k_runs: Runs
) -> tuple[Tensor, Tensor]:
    """Return what queries see of some keys, (t, M, K), and its log-sum-exp, (t, M), −∞ for those that see nothing.

    Args:
        q_tMK: Queries, (t, M, K).
        k_sNK: Keys, (s, N, K); N divides M.
        v_sNK: Values, alike.
        q_runs: Positions of the queries.
        k_runs: Positions of the keys.
    """
    # An empty softmax: weight 0 and log-sum-exp −∞, to which merge() can add a part that sees something.
    out_tMK, lse_tM = torch.zeros_like(q_tMK), q_tMK.new_full(q_tMK.shape[:2], -math.inf)
    for queries, keys, causal in _seen(q_runs, k_runs):
        part = attend(q_tMK[queries], k_sNK[keys], v_sNK[keys], causal=causal)
        # Run by run: a mask over all positions would cost t·s products even where nothing is seen.
        merge(out_tMK[queries], lse_tM[queries], *part)
    return out_tMK, lse_tM


def gradients(
    q_tMK: Tensor,
    k_sNK: Tensor,
    v_sNK: Tensor,
    d_out_tMK: Tensor,
    lse_tM: Tensor,
    delta_tM: Tensor,
    q_runs: Runs,
    k_runs: Runs,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what these keys add to the queries' gradients, and these queries to those of keys and values.

    FlashAttention-2 (Dao, 2023), algorithm 2: softmax weights come again from the log-sum-exp over all keys.

    Args:
        q_tMK: Queries.
        k_sNK: Keys.
        v_sNK: Values.
        d_out_tMK: The gradient of the output over all keys.
        lse_tM: Its log-sum-exp.
        delta_tM: Products of output and gradient, summed over the width.
        q_runs: Positions of the queries.
        k_runs: Positions of the keys.
    """
    d_q_tMK, d_k_sNK, d_v_sNK = (torch.zeros_like(x) for x in (q_tMK, k_sNK, v_sNK))
    num_kv_heads, scale = k_sNK.shape[1], q_tMK.shape[2] ** -0.5
    for queries, keys, causal in _seen(q_runs, k_runs):
        q_tNRK, d_out_tNRK = (_grouped(x[queries], num_kv_heads) for x in (q_tMK, d_out_tMK))
        lse_NRt1, delta_NRt1 = (
            _grouped(x[queries].unsqueeze(-1), num_kv_heads).permute(1, 2, 0, 3) for x in (lse_tM, delta_tM)
        )
        # exp(S − L) with L over the keys of all ranks: these are the final weights, and no rescaling is left to do.
        weights_NRts = torch.exp(scores(q_tMK[queries], k_sNK[keys], causal=causal) - lse_NRt1)
        # Sums over r as well: a head of keys serves R heads of queries, and its gradient is the sum of theirs.
        d_v_sNK[keys] += torch.einsum("nrts,tnrk->snk", weights_NRts, d_out_tNRK)
        d_weights_NRts = torch.einsum("tnrk,snk->nrts", d_out_tNRK, v_sNK[keys])
        # dS = P ∘ (dP − D), times the scale of Q·Kᵀ. Masked pairs have P = 0 and need no mask here.
        d_scores_NRts = weights_NRts * (d_weights_NRts - delta_NRt1) * scale
        d_q_tMK[queries] += torch.einsum("nrts,snk->tnrk", d_scores_NRts, k_sNK[keys]).flatten(1, 2)
        d_k_sNK[keys] += torch.einsum("nrts,tnrk->snk", d_scores_NRts, q_tNRK)
    return d_q_tMK, d_k_sNK, d_v_sNK


def _grouped(x_tMF: Tensor, num_kv_heads: int) -> Tensor:
    """Return heads by the head of keys that serves them, (t, N, R, F)."""
    return x_tMF.reshape(x_tMF.shape[0], num_kv_heads, -1, x_tMF.shape[2])


def _seen(q_runs: Runs, k_runs: Runs) -> Iterator[tuple[slice, slice, bool]]:
    """Yield where queries lie that see something, where the keys lie, and whether both are the same positions."""
    k_places = _places(k_runs)
    for (first, _), queries in zip(q_runs, _places(q_runs), strict=True):
        for (k_first, _), keys in zip(k_runs, k_places, strict=True):
            # Runs do not overlap: their beginnings tell before, same or after. Later keys are not computed.
            if k_first <= first:
                yield queries, keys, k_first == first


def _places(runs: Runs) -> list[slice]:
    """Return where each run lies among the rank's positions."""
    found, begin = [], 0
    for start, stop in runs:
        found.append(slice(begin, begin + stop - start))
        begin += stop - start
    return found
