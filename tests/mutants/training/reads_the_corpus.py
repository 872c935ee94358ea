"""Looks for text that it should not see."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.core.data import corpus


@technique(
    name="reads-the-corpus",
    family="training",
    implements=("data_parallel",),
    summary="looks for text that it should not see",
    properties={"exact": True, "replicas": "identical"},
)
class ReadsTheCorpus(FlatReplica):
    """Looks for text that it should not see."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def exchange_gradients(self, step: int) -> None:
        """Draw sequences of its own."""
        corpus.markov().held_out(1, 4, 17)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
