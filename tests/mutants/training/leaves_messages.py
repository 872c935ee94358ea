"""Sends more than its peers receive."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="leaves-messages",
    family="training",
    implements=("data_parallel",),
    summary="sends more than its peers receive",
    properties={"exact": False, "replicas": "apart"},
)
class LeavesMessages(FlatReplica):
    """Sends more than its peers receive."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def exchange_parameters(self, step: int) -> None:
        """Leave a message for whoever comes next."""
        if self.task.rank == 0 and step == 0:
            self.transfer = self.comm.start(sends=[(self.flat.values[:8].clone(), 1)])


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
