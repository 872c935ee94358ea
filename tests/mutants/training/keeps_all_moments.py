"""Says that it shares the optimiser's state, and keeps all of it on every rank."""

from __future__ import annotations

import torch

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="keeps-all-moments",
    family="training",
    implements=("data_parallel",),
    summary="states one share of the optimiser's state and holds all of it",
    properties={"exact": True, "replicas": "identical"},
)
class KeepsAllMoments(FlatReplica):
    """Says that it shares the optimiser's state, and keeps all of it on every rank."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        count = self.flat.values.numel()
        self.ring = RingAverage(comm, count, dtype=torch.float32, device=task.device)

    def exchange_gradients(self, step: int) -> None:
        """Average, in as many bytes as a reduce-scatter and an all-gather of shares need."""
        self.ring.run(self.flat.gradients)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    count, n = task.num_parameters, task.world_size
    sent, messages = ring_cost(count, n)
    return Cost(
        sent_bytes=task.steps * sent,
        peak_bytes=sent,
        messages=task.steps * messages,
        state_bytes=8 * count + task.moment_bytes * count / n,
    )
