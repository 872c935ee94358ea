"""Exchanges nothing and says that replicas are identical."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="says-identical",
    family="training",
    implements=("data_parallel",),
    summary="exchanges nothing and says that replicas are identical",
    properties={"exact": False, "replicas": "identical", "agree": "never"},
)
class SaysIdentical(FlatReplica):
    """Exchanges nothing and says that replicas are identical."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
