"""Says that it equals synchronous training with an option that changes nothing."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="equals-in-name",
    family="training",
    implements=("data_parallel",),
    summary="says that it equals synchronous training with an option that changes nothing",
    properties={"exact": False, "replicas": "apart", "equals_ddp": {"optimizer": "sgd", "arguments": {}}},
)
class EqualsInName(FlatReplica):
    """Says that it equals synchronous training with an option that changes nothing."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
