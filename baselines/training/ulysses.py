"""Ulysses: an all-to-all turns shares of the sequence into shares of the heads, and back after attention.

Jacobs et al., "DeepSpeed Ulysses: System Optimizations for Enabling Training of Extreme Long Sequence Transformer
Models" (2023), section 3.

Algorithm (n ranks with t of T positions and all H heads each):
1. Queries of H/n heads, and the G/n heads of keys and values that serve them, go to each rank: it then has all
   positions of its heads.
2. It attends as one process would.
3. The result goes back: each rank has all heads of its positions again. Backward is the same in reverse.

Cost of a layer: 2·(H + G)·(n − 1)/n · t rows of 4·K bytes a sequence forward (4·d·t·(n − 1)/n elements where G = H) and
as much backward, in 2·(n − 1) messages each: constant when positions and ranks grow alike. Memory: all positions of H/n
heads.
Limits: no more ranks than heads of keys, and as many on each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.model import causal_attention
from paceline.families.training.api.replica import Comm, Cost, Task, UnsupportedError
from paceline.families.training.api.sequence.exchange import to_heads, to_positions
from paceline.families.training.api.sequence.replica import SequenceReplica, counts_of, row_of, sequence_cost


@technique(
    name="ulysses",
    family="training",
    implements=("sequence_parallel",),
    summary="all-to-all between shares of positions and shares of heads",
    paper="ulysses",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "section 3 by the header, not read for this card",
            "code": "github.com/microsoft/DeepSpeed: deepspeed/sequence/layer.py",
        },
        "deviations": (
            (
                "Queries, keys and values travel as one message; DeepSpeed exchanges each by itself, and can "
                "overlap them."
            ),
            "States are not sharded, which the paper adds.",
            "Heads must divide among the ranks; DeepSpeed has a path for those that do not.",
        ),
        "constants": {},
        "checked_by": (
            "tests/unit/test_sequence.py::test_gradients_and_bytes_are_those_of_one_process_and_of_the_formula",
            "tests/unit/test_sequence.py::test_ulysses_sends_four_shares_of_the_rows_each_way",
        ),
    },
)
class Ulysses(SequenceReplica):
    """Attend over whole sequences with some heads."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        size = self.layers[0].size
        for heads, whose in ((size.heads, ""), (size.num_kv_heads, " of keys")):
            if heads % task.world_size:
                raise UnsupportedError(
                    f"{heads} heads{whose} cannot be dealt out evenly to {task.world_size} ranks"
                )

    def attend(self, q_BHtK: Tensor, k_BGtK: Tensor, v_BGtK: Tensor) -> Tensor:
        """Exchange positions for heads, attend, and exchange back."""
        shares = [x.chunk(self.comm.world_size, dim=1) for x in (q_BHtK, k_BGtK, v_BGtK)]
        # Interleaved by rank: q, k and v of one rank's heads are neighbours and leave as one message.
        by_rank = [part for of_rank in zip(*shares, strict=True) for part in of_rank]
        whole_BhTK = to_heads(self.comm, torch.cat(by_rank, dim=1), self.counts)
        each = [share[0].shape[1] for share in shares]
        # This rank now has every position of its heads: plain causal attention, nothing to merge.
        return to_positions(self.comm, causal_attention(*torch.split(whole_BhTK, each, dim=1)), self.counts)


def cost(task: Task) -> Cost:
    """Return the header's formula with the exact positions of each rank."""
    counts, row = counts_of(task), row_of(task)
    n, total = len(counts), sum(counts)

    def attention(rank: int) -> tuple[float, int]:
        out, back = counts[rank] * (n - 1) / n, (total - counts[rank]) / n
        # q, k, v leave and the result returns; backward the other way round: 2·(q + k) each way in all.
        return 2 * (row.queries_bytes + row.keys_bytes) * (out + back), 4 * (n - 1)

    return sequence_cost(task, attention)
