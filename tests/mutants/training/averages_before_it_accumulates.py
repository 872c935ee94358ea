"""Averages gradients before they reach the parameters, where nobody sees a rank's own any more."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Replica, Task


@technique(
    name="averages-before-it-accumulates",
    family="training",
    implements=("data_parallel",),
    summary="averages gradients before they reach the parameters",
    properties={"exact": True, "replicas": "identical"},
)
class AveragesBeforeItAccumulates(Replica):
    """Average each gradient in a hook that comes before any other."""

    own_gradients = False

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        for parameter in self.model.parameters():
            parameter.register_hook(self._average)  # type: ignore[no-untyped-call]  # torch leaves it without types

    def _average(self, gradient: Tensor) -> Tensor:
        mean = gradient.contiguous().clone()
        self.comm.backend.all_reduce(mean)
        return mean.div_(self.comm.world_size)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
