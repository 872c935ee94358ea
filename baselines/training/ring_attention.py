"""Ring attention: keys and values travel around a ring while queries attend to what is there.

Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context" (ICLR 2024), section 3; the backward
by blocks from saved log-sum-exps is FlashAttention-2's (Dao, 2023, algorithm 2).

Algorithm (n ranks with t of T positions each):
1. A rank's queries attend to its own keys; meanwhile these set out to the next rank. After n steps every query has met
   every key. Partial results are merged by their log-sum-exp.
2. Backward: keys and values go around again; with them go their gradients, to which every rank adds, and which arrive
   home after n steps.

Cost of a layer: 2·(n − 1)/n · T rows of 4·d bytes a sequence forward, in n − 1 messages; backward as much again and
2·T rows of gradients, in 2·n − 1 messages. Memory: three blocks of keys and values forward, five with their
gradients backward; softmax weights (t, t).
Differences: blocks are not cut further; a zigzag of positions balances causal work.
Limits: blocks of which nothing is seen travel all the same.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.replica import Comm, Cost, Task
from paceline.families.training.sequence.layout import zigzag
from paceline.families.training.sequence.replica import SequenceReplica, counts_of, row_bytes, sequence_cost


@technique(
    name="ring-attention",
    family="training",
    implements=("sequence_parallel",),
    summary="keys and values travel around a ring of queries",
    properties={"exact": True, "replicas": "identical"},
)
class RingAttention(SequenceReplica):
    """Attend to blocks as they come by."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm, zigzag)
        own = self.places[comm.rank]
        self.sees = [own[:, None] >= keys[None, :] for keys in self.places]
        """For each rank: which of its keys this rank's queries see, (t, its positions)."""

    def attend(self, q_BHtK: Tensor, k_BHtK: Tensor, v_BHtK: Tensor) -> Tensor:
        """Let keys and values go around."""
        found: Tensor = _Ring.apply(self.comm, self.sees, q_BHtK, k_BHtK, v_BHtK)  # type: ignore[no-untyped-call]  # torch leaves it without types
        return found


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, sees: list[Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        block = torch.stack([k, v])
        out, lse = torch.zeros_like(q), q.new_full((*q.shape[:3], 1), -math.inf)
        for step in range(comm.world_size):
            owner = (comm.rank - step) % comm.world_size
            coming, transfer = (
                _pass_on(comm, sees, block, step) if step + 1 < comm.world_size else (block, None)
            )
            scores = _scores(q, block[0], sees[owner])
            part_lse = torch.logsumexp(scores, dim=-1, keepdim=True)
            part = torch.exp(scores - _finite(part_lse)) @ block[1]
            merged = torch.logaddexp(lse, part_lse)
            out = out * torch.exp(lse - merged) + part * torch.exp(part_lse - merged)
            lse = merged
            if transfer is not None:
                transfer.wait()
            block = coming
        ctx.comm, ctx.sees = comm, sees
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor, Tensor, Tensor]:
        (d_out,) = gradients
        comm: Comm = ctx.comm
        sees: list[Tensor] = ctx.sees
        q, k, v, out, lse = ctx.saved_tensors
        scale = 1 / math.sqrt(q.shape[-1])
        delta = (d_out * out).sum(dim=-1, keepdim=True)
        block, d_q = torch.stack([k, v]), torch.zeros_like(q)
        d_block = torch.zeros_like(block)
        for step in range(comm.world_size):
            owner = (comm.rank - step) % comm.world_size
            coming, transfer = (
                _pass_on(comm, sees, block, step) if step + 1 < comm.world_size else (block, None)
            )
            weights = torch.exp(_scores(q, block[0], sees[owner]) - lse)
            d_scores = weights * (d_out @ block[1].transpose(-1, -2) - delta)
            d_q += d_scores @ block[0] * scale
            d_block[0] += d_scores.transpose(-1, -2) @ q * scale
            d_block[1] += weights.transpose(-1, -2) @ d_out
            if transfer is not None:
                transfer.wait()
            if comm.world_size > 1:
                d_coming, transfer = _pass_on(comm, sees, d_block, step)
                transfer.wait()
                d_block = d_coming
            block = coming
        return None, None, d_q, d_block[0], d_block[1]


def _pass_on(comm: Comm, sees: list[Tensor], block: Tensor, step: int) -> tuple[Tensor, Any]:
    """Send a block, (2, B, H, t, K), to the next rank and start to receive the one that is there after this step."""
    size = comm.world_size
    owner = (comm.rank - step - 1) % size
    coming = block.new_empty((*block.shape[:3], sees[owner].shape[1], block.shape[4]))
    after, before = (comm.rank + 1) % size, (comm.rank - 1) % size
    return coming, comm.start(sends=[(block, after)], receives=[(coming, before)])


def _scores(q: Tensor, k: Tensor, sees: Tensor) -> Tensor:
    """Return scaled scores, −∞ where a key is not seen, (B, H, t, its positions)."""
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill_(~sees, -math.inf)


def _finite(lse: Tensor) -> Tensor:
    """Replace −∞, of queries that see nothing in a block, by zero: their weights are zero then."""
    return torch.where(torch.isinf(lse), torch.zeros_like(lse), lse)


def cost(task: Task) -> Cost:
    """Return the header's formula with the exact positions of each rank."""
    counts, row = counts_of(task, zigzag), row_bytes(task)
    n, total = len(counts), sum(counts)

    def attention(rank: int) -> tuple[float, int]:
        passed = total - counts[(rank + 1) % n]
        return 2 * row * (2 * passed + total), 3 * n - 2

    return sequence_cost(task, attention)
