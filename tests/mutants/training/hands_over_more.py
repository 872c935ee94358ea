"""States half of what it hands to the backend."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="hands-over-more",
    family="training",
    implements=("data_parallel",),
    summary="states half of what it hands to the backend",
    properties={"exact": True, "replicas": "identical"},
)
class HandsOverMore(FlatReplica):
    """States half of what it hands to the backend."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def exchange_gradients(self, step: int) -> None:
        """Average."""
        self.comm.backend.all_reduce(self.flat.gradients)
        self.flat.gradients.div_(self.comm.world_size)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return Cost(backend_bytes=2 * task.num_parameters * task.steps)
