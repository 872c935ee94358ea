"""Begins with weights that are not the point's."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="begins-elsewhere",
    family="training",
    implements=("data_parallel",),
    summary="begins with weights that are not the point's",
    properties={"exact": False, "replicas": "apart"},
)
class BeginsElsewhere(FlatReplica):
    """Begins with weights that are not the point's."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.flat.values.mul_(0.5)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
