"""Skips the update: the fastest training there is."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="learns-nothing",
    family="training",
    implements=("data_parallel",),
    summary="skips the update: the fastest training there is",
    properties={"exact": False, "replicas": "apart", "agree": "always"},
)
class LearnsNothing(FlatReplica):
    """Skips the update: the fastest training there is."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def update(self, step: int) -> None:
        """Do nothing."""


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
