"""Ring attention: keys and values travel around a ring while queries attend to what is there.

Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context" (ICLR 2024), section 3; the backward
by blocks from saved log-sum-exps is FlashAttention-2's (Dao, 2023, algorithm 2).

Algorithm (n ranks with t of T positions each):
1. A rank's queries attend to its own keys; meanwhile these set out to the next rank. After n steps every query has met
   every key. Partial results are merged by their log-sum-exp.
2. Backward: keys and values go around again; with them go their gradients, to which every rank adds, and which arrive
   home after n steps.

Cost of a layer: 2·(n − 1)/n · T rows of 4·G·K bytes a sequence forward (G heads of keys of width K), in n − 1 messages;
backward as much again and 2·T rows of gradients, in 2·n − 1 messages. All go to the next rank; the other direction of
every link is idle. Memory: three blocks of keys and values forward, five with their gradients backward; softmax weights
of two runs of positions.
Differences: blocks are not cut further than into the two runs of a zigzag, which balances causal work.
Limits: keys of which nothing is seen travel all the same.

Shape suffixes: B sequences, H heads of queries, G of keys, t own positions, s those at hand, M = B·H, N = B·G.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Transfer
from paceline.families.training.api.model import heads_first, positions_first
from paceline.families.training.api.replica import Comm, Cost, Task
from paceline.families.training.api.sequence.blocks import attend_to, gradients, merge
from paceline.families.training.api.sequence.layout import zigzag
from paceline.families.training.api.sequence.replica import SequenceReplica, counts_of, row_of, sequence_cost


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

    def attend(self, q_BHtK: Tensor, k_BGtK: Tensor, v_BGtK: Tensor) -> Tensor:
        """Let keys and values go around."""
        found_tMK: Tensor = _Ring.apply(self, *map(positions_first, (q_BHtK, k_BGtK, v_BGtK)))  # type: ignore[no-untyped-call]  # torch leaves it without types
        return heads_first(found_tMK, q_BHtK.shape[0])

    def pass_on(self, block_2sNK: Tensor, step: int) -> tuple[Tensor, Transfer]:
        """Send what is at hand to the next rank; start to receive what is there after this step."""
        rank, size = self.comm.rank, self.comm.world_size
        _, _, heads, width = block_2sNK.shape
        # A fresh buffer: the one at hand is read by attention and by its send until the transfer has ended.
        coming = block_2sNK.new_empty(2, self.counts[(rank - step - 1) % size], heads, width)
        # Both ends are posted in one call, so the ring has no rank that must receive before it can send.
        sends, receives = [(block_2sNK, (rank + 1) % size)], [(coming, (rank - 1) % size)]
        return coming, self.comm.start(sends=sends, receives=receives)


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ring: RingAttention, q_tMK: Tensor, k_tNK: Tensor, v_tNK: Tensor) -> Tensor:
        rank, size = ring.comm.rank, ring.comm.world_size
        # One message for keys and values: the ring's n − 1 hops each pay the latency once.
        block = torch.stack([k_tNK, v_tNK])
        for step in range(size):
            last = step + 1 == size
            coming, transfer = (block, None) if last else ring.pass_on(block, step)
            part_tMK, part_lse_tM = attend_to(
                q_tMK, block[0], block[1], ring.runs[rank], ring.runs[(rank - step) % size]
            )
            # The own block first: every query sees itself, so sums are finite before blocks of −∞ are merged.
            if step == 0:
                out_tMK, lse_tM = part_tMK, part_lse_tM
            else:
                merge(out_tMK, lse_tM, part_tMK, part_lse_tM)
            if transfer is not None:
                transfer.wait()
            block = coming
        ctx.ring = ring
        # The own keys alone: keeping the visiting ones would cost what the ring saves. They come again.
        ctx.save_for_backward(q_tMK, k_tNK, v_tNK, out_tMK, lse_tM)
        return out_tMK

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        (d_out_tMK,) = outer
        ring: RingAttention = ctx.ring
        rank, size = ring.comm.rank, ring.comm.world_size
        q_tMK, k_tNK, v_tNK, out_tMK, lse_tM = ctx.saved_tensors
        # rowsum(dO ∘ O), FlashAttention-2, algorithm 2: the softmax's term over all keys of all ranks.
        delta_tM = (d_out_tMK * out_tMK).sum(dim=-1)
        block, d_q_tMK = torch.stack([k_tNK, v_tNK]), torch.zeros_like(q_tMK)
        d_block = torch.zeros_like(block)
        for step in range(size):
            last = step + 1 == size
            coming, transfer = (block, None) if last else ring.pass_on(block, step)
            runs = ring.runs[rank], ring.runs[(rank - step) % size]
            d_q, d_k, d_v = gradients(q_tMK, block[0], block[1], d_out_tMK, lse_tM, delta_tM, *runs)
            d_q_tMK += d_q
            d_block[0] += d_k
            d_block[1] += d_v
            if transfer is not None:
                transfer.wait()
            # The gradient leaves once this rank has added to it; its n-th hop, unlike keys', brings it home.
            if size > 1:
                d_coming, transfer = ring.pass_on(d_block, step)
                transfer.wait()
                d_block = d_coming
            block = coming
        return None, d_q_tMK, d_block[0], d_block[1]


def cost(task: Task) -> Cost:
    """Return the header's formula with the exact positions of each rank."""
    counts, row = counts_of(task, zigzag), row_of(task)
    n, total = len(counts), sum(counts)

    def attention(rank: int) -> tuple[float, int]:
        passed = total - counts[(rank + 1) % n]
        # Keys and values: n − 1 hops forward and again backward; gradients: n hops, which is every chunk once.
        return 2 * row.keys_bytes * (2 * passed + total), 3 * n - 2

    return sequence_cost(task, attention)
