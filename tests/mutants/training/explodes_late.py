"""Multiplies its weights in every step after those of the proofs."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="explodes-late",
    family="training",
    implements=("data_parallel",),
    summary="multiplies its weights when proofs are over",
    properties={"exact": False, "replicas": "apart", "agree": "always"},
)
class ExplodesLate(FlatReplica):
    """Multiplies its weights when proofs are over."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def update(self, step: int) -> None:
        """Leave the numbers that floats can hold."""
        self.flat.values.mul_(1e6 if step > 12 else 0.99)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
