"""Averages all gradients but the last hundredth."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="skips-the-tail",
    family="training",
    implements=("data_parallel",),
    summary="averages all gradients but the last hundredth",
    properties={"exact": True, "replicas": "identical"},
)
class SkipsTheTail(FlatReplica):
    """Averages all gradients but the last hundredth."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def exchange_gradients(self, step: int) -> None:
        """Leave the end out."""
        head = self.flat.gradients[: -(self.flat.gradients.numel() // 100)]
        self.comm.backend.all_reduce(head)
        head.div_(self.comm.world_size)
        self.flat.gradients[head.numel() :].zero_()


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
