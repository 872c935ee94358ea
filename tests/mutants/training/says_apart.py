"""Averages gradients and says that its replicas drift apart."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="says-apart",
    family="training",
    implements=("data_parallel",),
    summary="averages gradients and says that replicas drift apart",
    properties={"exact": False, "replicas": "apart", "agree": "never"},
)
class SaysApart(FlatReplica):
    """Averages gradients and says that its replicas drift apart."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def exchange_gradients(self, step: int) -> None:
        """Average."""
        self.comm.backend.all_reduce(self.flat.gradients)
        self.flat.gradients.div_(self.comm.world_size)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
