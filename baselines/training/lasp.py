"""LASP: of linear attention's sequence one state passes from rank to rank, as a whole.

Sun et al., "Linear Attention Sequence Parallelism", arXiv 2404.02882, 2024, section 3.2; the serial scan that ZeCO
(arXiv 2507.01004) is measured against.

Algorithm (n ranks with t consecutive positions of T each):
1. Run the recurrence over the own positions as if nothing came before.
2. Wait for the state before them; decay it, add the own contribution, and send it on.
3. The state before adds to every output what its query, decayed, reads from it.
4. Backward: the state's gradient passes from the last rank to the first in the same way.

Cost of a layer and sequence: one state, G·K·K elements (G heads of keys, of width K), from every rank but the last
forward and from every rank but the first backward, in one message each, whatever T and n. Memory: one state.

Differences from the paper: decays are learned, for every row of the state, in [0.9, 1); the paper has one a head.
Limits: rank r waits for r whole states forward, and n − 1 − r backward.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task
from paceline.families.training.api.sequence.states import StateReplica, state_cost


@technique(
    name="lasp",
    family="training",
    implements=("sequence_parallel",),
    summary="one state of linear attention passes from rank to rank, as a whole",
    properties={"exact": True, "replicas": "identical"},
)
class LASP(StateReplica):
    """Serial scan of the state, forward and backward. N heads of all sequences, K width."""

    def scan(self, own_NKK: Tensor, decay_NK: Tensor, *, before: int | None, after: int | None) -> Tensor:
        """Wait for the state, and send what becomes of it."""
        # Receive before send cannot deadlock: the chain is open, and its first rank waits for nobody.
        prefix_NKK = torch.zeros_like(own_NKK)
        if before is not None:
            self.comm.receive(prefix_NKK, before)
        if after is not None:
            # The state after this rank: what its decays leave of the state before, plus what its own positions add.
            self.comm.send(prefix_NKK * decay_NK.unsqueeze(-1) + own_NKK, after)
        return prefix_NKK


def cost(task: Task) -> Cost:
    """Return the closed forms of the header."""
    return state_cost(task, 1)
