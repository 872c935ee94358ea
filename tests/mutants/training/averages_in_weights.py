"""Averages its replicas only when somebody looks."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="averages-in-weights",
    family="training",
    implements=("data_parallel",),
    summary="averages its replicas only when somebody looks",
    properties={"exact": False, "replicas": "identical"},
)
class AveragesInWeights(FlatReplica):
    """Averages its replicas only when somebody looks."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def weights(self) -> list[Tensor]:
        """Average, outside the clock."""
        mean = self.flat.values.clone()
        self.comm.backend.all_reduce(mean)
        return self.flat.pieces(mean.div_(self.comm.world_size))


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
