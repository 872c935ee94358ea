"""Masks positions of a zigzag as if ranks had neighbours."""

from __future__ import annotations

from itertools import accumulate, pairwise

from paceline.baselines.training import token_ring
from paceline.baselines.training.token_ring import TokenRing

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="masks-in-order",
    family="training",
    implements=("sequence_parallel",),
    summary="the masks of one layout on another",
    properties={"exact": True, "replicas": "identical"},
)
class MasksInOrder(TokenRing):
    """Right where the order of ranks is that of positions."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.runs = [[run] for run in pairwise(accumulate(self.counts, initial=0))]


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return token_ring.cost(task, direct_last=False)
