"""No communication: every replica trains on its own share of the batch.

The negative control of every technique: nothing can be faster on these ranks, and a loss that is no better than this
one's was not worth a byte.

Algorithm: each rank takes its optimiser's step on its own gradients.
Cost: nothing is sent. Memory: that of one process.
Differences: none. Limits: replicas drift apart; each sees 1/n of the tokens.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="no-communication",
    family="training",
    implements=("data_parallel",),
    summary="no communication: every replica on its own share",
    properties={"exact": False, "replicas": "apart"},
)
class NoCommunication(FlatReplica):
    """Train without any exchange."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)


def cost(task: Task) -> Cost:
    """Return nothing."""
    return Cost(sent_bytes=0, peak_bytes=0, messages=0)
