"""Sequence parallelism by gathering: every rank gathers all keys and values before its queries attend.

The plain way, and the baseline of the others (context parallelism with all-gather: Dubey et al., "The Llama 3 Herd of
Models", 2024, section 3.3.2).

Algorithm (n ranks with t positions each of T):
1. Keys and values of all positions come around a ring.
2. Each rank's queries attend to those before them.
3. Backward: gradients of keys and values are reduce-scattered around the ring.

Cost of a layer: 2·(n − 1)/n · T rows of 4·G·K bytes a sequence forward and as much backward, in n − 1 messages each (G
heads of keys, of width K).
Memory: keys and values of all positions in every layer until its backward; softmax weights (t, T).
Differences: a zigzag of positions balances causal work.
Limits: what a rank receives and holds grows with T, however many ranks there are.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task
from paceline.families.training.api.sequence.exchange import gather_positions
from paceline.families.training.api.sequence.layout import zigzag
from paceline.families.training.api.sequence.replica import SequenceReplica, counts_of, row_of, sequence_cost


@technique(
    name="all-gather-sp",
    family="training",
    implements=("sequence_parallel",),
    summary="keys and values of all positions are gathered in every layer",
    properties={"exact": True, "replicas": "identical"},
)
class AllGatherSP(SequenceReplica):
    """Gather keys and values, then attend."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm, zigzag)
        keys_T = torch.cat(self.places)
        # Explicit, since a zigzag's positions are not consecutive: SDPA's is_causal would mask the wrong pairs.
        self.sees_tT = self.places[comm.rank][:, None] >= keys_T[None, :]

    def attend(self, q_BHtK: Tensor, k_BGtK: Tensor, v_BGtK: Tensor) -> Tensor:
        """Gather keys and values as one message, and attend."""
        # Keys and values travel together: half as many messages on a ring whose steps are latency-bound.
        both = gather_positions(self.comm, torch.cat([k_BGtK, v_BGtK]), self.counts)
        k_BGTK, v_BGTK = both.chunk(2)
        grouped = q_BHtK.shape[1] != k_BGtK.shape[1]
        return functional.scaled_dot_product_attention(
            q_BHtK, k_BGTK, v_BGTK, attn_mask=self.sees_tT, enable_gqa=grouped
        )


def cost(task: Task) -> Cost:
    """Return the header's formula with the exact positions of each rank."""
    counts, row = counts_of(task, zigzag), row_of(task)
    n, total = len(counts), sum(counts)

    def attention(rank: int) -> tuple[float, int]:
        # An all-gather passes on every chunk but the next rank's; a reduce-scatter every chunk but the rank's own.
        forward, backward = total - counts[(rank + 1) % n], total - counts[rank]
        return 2 * row.keys_bytes * (forward + backward), 2 * (n - 1)

    return sequence_cost(task, attention)
