"""Adds gradients up and forgets to divide."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="sums-gradients",
    family="training",
    implements=("data_parallel",),
    summary="adds gradients up and forgets to divide",
    properties={"exact": True, "replicas": "identical"},
)
class SumsGradients(FlatReplica):
    """Adds gradients up and forgets to divide."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def exchange_gradients(self, step: int) -> None:
        """Sum."""
        self.comm.backend.all_reduce(self.flat.gradients)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
