"""Takes a step when it is asked for its weights."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="trains-in-weights",
    family="training",
    implements=("data_parallel",),
    summary="takes a step when it is asked for its weights",
    properties={"exact": False, "replicas": "apart"},
)
class TrainsInWeights(FlatReplica):
    """Takes a step when it is asked for its weights."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def weights(self) -> list[Tensor]:
        """Train, outside the clock."""
        self.flat.values.mul_(0.999)
        return super().weights()


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
