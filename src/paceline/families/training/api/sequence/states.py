"""Ranks that share sequences under gated linear attention: of all earlier positions each needs one state alone.

Ranks have consecutive positions. A rank runs the recurrence over its own as if nothing came before; what the state
before them adds is linear in it. Techniques differ in how that state reaches each rank.

Shape suffixes: B sequences, H heads of queries, G of keys, t a rank's positions, K width of a head, M = B·H, N = B·G.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from paceline.families.collectives.api.linear_attention import local_pass
from paceline.families.training.api.model import heads_first, positions_first
from paceline.families.training.api.replica import Cost, Task
from paceline.families.training.api.sequence.replica import SequenceReplica, row_of, sequence_cost
from paceline.families.training.api.sizes import GATED_LINEAR


class StateReplica(SequenceReplica):
    """Trains gated linear attention on consecutive positions of every sequence."""

    attention = GATED_LINEAR

    @abstractmethod
    def scan(self, own_NKK: Tensor, decay_NK: Tensor, *, before: int | None, after: int | None) -> Tensor:
        """Return the state that comes from the ranks before, zero for the first; pass on what becomes of it.

        What leaves is the state before times the decay of its rows, and the own one. Forward goes from the first rank
        to the last, backward, with gradients of states, from the last to the first.

        Args:
            own_NKK: What this rank adds to the state.
            decay_NK: What it leaves of each row of the state before.
            before: The rank whose state arrives; None for the first.
            after: The rank that gets this one's; None for the last.
        """

    def attend(
        self, q_BHtK: Tensor, k_BGtK: Tensor, v_BGtK: Tensor, log_decay_BGtK: Tensor | None = None
    ) -> Tensor:
        """Run the recurrence over the own positions and add what the state before them gives."""
        assert log_decay_BGtK is not None
        repeats = q_BHtK.shape[1] // k_BGtK.shape[1]
        alike = (x.repeat_interleave(repeats, dim=1) for x in (k_BGtK, v_BGtK, log_decay_BGtK))
        local = local_pass(*(positions_first(x) for x in (q_BHtK, *alike)))
        # Every repeats-th head: queries that share a head of keys share its state, which need travel only once.
        prefix_NKK = _Prefix.apply(self, local.state_HDD[::repeats], local.decay_HD[::repeats])  # type: ignore[no-untyped-call]  # torch leaves it without types
        prefix_MKK = prefix_NKK.repeat_interleave(repeats, dim=0)
        # Outputs are linear in the state: what came before is added, read by decayed queries.
        seen_tMK = local.out_THD + torch.einsum("tmk,mkv->tmv", local.query_THD, prefix_MKK)
        return heads_first(seen_tMK, q_BHtK.shape[0])


class _Prefix(torch.autograd.Function):
    """The state before a rank's positions; with P′ = α P + S its gradients are a scan in the other direction."""

    @staticmethod
    def forward(ctx: Any, replica: StateReplica, own_NKK: Tensor, decay_NK: Tensor) -> Tensor:
        ctx.replica = replica
        before, after = _neighbours(replica)
        prefix_NKK = replica.scan(own_NKK.contiguous(), decay_NK.contiguous(), before=before, after=after)
        ctx.save_for_backward(prefix_NKK, decay_NK)
        return prefix_NKK

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        prefix_NKK, decay_NK = ctx.saved_tensors
        before, after = _neighbours(ctx.replica)
        # dP = α·dP′ plus what own outputs say: the forward's scan with its two neighbours exchanged.
        later_NKK = ctx.replica.scan(
            gradients[0].contiguous(), decay_NK.contiguous(), before=after, after=before
        )
        # dS = dP′ and dα = rowsum(dP′ ∘ P). The scan returns dP′, the gradient that came from the ranks after.
        return None, later_NKK, (later_NKK * prefix_NKK).sum(dim=-1)


def _neighbours(replica: StateReplica) -> tuple[int | None, int | None]:
    rank, size = replica.comm.rank, replica.comm.world_size
    return rank - 1 if rank else None, rank + 1 if rank + 1 < size else None


def state_cost(task: Task, messages: int) -> Cost:
    """Return the cost of one state from each rank but the last forward, and from each but the first backward.

    Args:
        task: The task.
        messages: In which a state travels.
    """
    row = row_of(task)
    size_bytes = row.keys_bytes * row.head_width

    def attention(rank: int) -> tuple[float, int]:
        states = (rank + 1 < task.world_size) + (rank > 0)
        return states * size_bytes, states * messages

    return sequence_cost(task, attention)
