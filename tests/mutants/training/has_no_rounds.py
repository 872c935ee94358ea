"""Says that its replicas agree at the end of each round, and has no rounds."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="has-no-rounds",
    family="training",
    implements=("data_parallel",),
    summary="says that replicas agree at the end of each round, and has no rounds",
    properties={"exact": False, "replicas": "apart", "agree": "rounds"},
)
class HasNoRounds(FlatReplica):
    """Says that its replicas agree at the end of each round, and has no rounds."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
