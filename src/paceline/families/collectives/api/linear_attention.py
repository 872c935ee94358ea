"""Gated linear attention over a split sequence: ``run(q_THD, k_THD, v_THD, log_decay_THD, out_THD)``.

T tokens of this rank's consecutive chunk, H heads, D width. With the state S ∈ (D, D) of a head running over the whole
sequence, Sₜ = diag(αₜ) Sₜ₋₁ + kₜ vₜᵀ and outₜ = Sₜᵀ qₜ, where αₜ = exp(log_decayₜ). Ranks hold consecutive chunks, so a
rank needs one state from all earlier ranks. ``local_pass`` and ``apply_prefix`` are the parts that need no
communication; techniques differ in how the prefix state reaches each rank.
Source: ZeCO (arXiv 2507.01004), section 3; chunked form after Gated Linear Attention (arXiv 2312.06635), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Bounds exp(−c), by which keys grow within a chunk: 0.9⁻¹⁶ is 5.4, and float32 keeps its precision.
CHUNK_TOKENS = 16
MIN_DECAY = 0.9
"""Decays are drawn from [0.9, 1), as trained gates are: within a chunk no factor underflows in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPass:
    """What a rank can compute alone."""

    out_THD: Tensor
    """Outputs as if the prefix state were zero."""
    state_HDD: Tensor
    """This chunk's contribution to the running state at its end, (heads, key, value)."""
    decay_HD: Tensor
    """Product of the chunk's decays: how much of an earlier state is left at its end."""
    query_THD: Tensor
    """Queries times the decay since the chunk's begin: what meets the prefix state."""


def local_pass(q_THD: Tensor, k_THD: Tensor, v_THD: Tensor, log_decay_THD: Tensor) -> LocalPass:
    """Run the recurrence over this rank's chunk with a zero prefix, in blocks of ``CHUNK_TOKENS`` tokens.

    All arguments are (T, H, D) of one floating dtype, which the results have too; ``log_decay_THD`` is at most 0.
    """
    tokens, heads, width = q_THD.shape
    state_HDD = q_THD.new_zeros(heads, width, width)
    total_HD = q_THD.new_zeros(heads, width)
    out_THD, query_THD = torch.empty_like(q_THD), torch.empty_like(q_THD)
    for start in range(0, tokens, CHUNK_TOKENS):
        part = slice(start, min(start + CHUNK_TOKENS, tokens))
        decay_CHD = log_decay_THD[part].cumsum(dim=0)
        # The decay from key s to query t is exp(cₜ − cₛ), c the running sum of logs: one factor for each side makes the
        # chunk one matrix product (Gated Linear Attention, section 4).
        grown_CHD, shrunk_CHD = q_THD[part] * decay_CHD.exp(), k_THD[part] * (-decay_CHD).exp()
        # Causal with the diagonal: outₜ comes from Sₜ, which already holds the token's own kₜ vₜᵀ.
        scores_HCC = torch.einsum("chd,shd->hcs", grown_CHD, shrunk_CHD).tril_()
        out_CHD = torch.einsum("hcs,shv->chv", scores_HCC, v_THD[part])
        # Before the state is advanced: earlier chunks reach these tokens through the state at the chunk's begin.
        out_THD[part] = out_CHD + torch.einsum("chd,hdv->chv", grown_CHD, state_HDD)
        # Decayed since the begin of the rank's tokens, not of this chunk: what arrives from earlier ranks stands there.
        query_THD[part] = grown_CHD * total_HD.exp()
        last_HD = decay_CHD[-1]
        state_HDD = state_HDD * last_HD.exp().unsqueeze(-1)
        # exp(c_last − cₛ): what is left of key s at the chunk's end.
        state_HDD += torch.einsum("chd,chv->hdv", shrunk_CHD * last_HD.exp(), v_THD[part])
        # Kept as a logarithm: one exp of a sum instead of a product that is rounded for every token.
        total_HD = total_HD + last_HD
    return LocalPass(out_THD=out_THD, state_HDD=state_HDD, decay_HD=total_HD.exp(), query_THD=query_THD)


def apply_prefix(local: LocalPass, prefix_HDD: Tensor, out_THD: Tensor) -> None:
    """Write the chunk's outputs (T, H, D) for a given prefix state (H, D, D) into ``out_THD``."""
    torch.add(local.out_THD, torch.einsum("thd,hdv->thv", local.query_THD, prefix_HDD), out=out_THD)


def advance(local: LocalPass, prefix_HDD: Tensor) -> Tensor:
    """Return the running state at the chunk's end for a given prefix state, both (heads, key, value)."""
    return prefix_HDD * local.decay_HD.unsqueeze(-1) + local.state_HDD


def recurrence(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """Run the recurrence token by token; the definition that everything else is checked against.

    Arguments and result are (T, H, D) of one floating dtype; T is the whole sequence.
    """
    heads, width = q.shape[1:]
    state_HDD = q.new_zeros(heads, width, width)
    seen = []
    for q_HD, k_HD, v_HD, log_HD in zip(q.unbind(), k.unbind(), v.unbind(), log_decay.unbind(), strict=True):
        state_HDD = state_HDD * log_HD.exp().unsqueeze(-1) + k_HD.unsqueeze(-1) * v_HD.unsqueeze(-2)
        seen.append(torch.einsum("hd,hdv->hv", q_HD, state_HDD))
    return torch.stack(seen)
