"""States half of the bytes that it sends."""

from __future__ import annotations

import torch

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="lies-about-bytes",
    family="training",
    implements=("data_parallel",),
    summary="states half of the bytes that it sends",
    properties={"exact": True, "replicas": "identical"},
)
class LiesAboutBytes(FlatReplica):
    """States half of the bytes that it sends."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        count = self.flat.values.numel()
        self.ring = RingAverage(comm, count, dtype=torch.float32, device=task.device)

    def exchange_gradients(self, step: int) -> None:
        """Average."""
        self.ring.run(self.flat.gradients)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return Cost(
        sent_bytes=task.steps * ring_cost(task.num_parameters, task.world_size)[0] / 2,
        peak_bytes=ring_cost(task.num_parameters, task.world_size)[0] / 2,
        messages=task.steps * ring_cost(task.num_parameters, task.world_size)[1],
    )
