"""Multiplies its weights in every step."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="explodes",
    family="training",
    implements=("data_parallel",),
    summary="multiplies its weights in every step",
    properties={"exact": False, "replicas": "apart"},
)
class Explodes(FlatReplica):
    """Multiplies its weights in every step."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def update(self, step: int) -> None:
        """Leave the numbers that floats can hold."""
        self.flat.values.mul_(1e6)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
