"""Keeps momentum that a checkpoint does not hold."""

from __future__ import annotations

import torch

from paceline import technique
from paceline.families.training.api.exchange import RingAverage
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="forgets-its-state",
    family="training",
    implements=("data_parallel",),
    summary="keeps momentum that a checkpoint does not hold",
    properties={"exact": False, "replicas": "identical"},
)
class ForgetsItsState(FlatReplica):
    """Keeps momentum that a checkpoint does not hold."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.momentum = torch.zeros_like(self.flat.values)
        self.ring = RingAverage(comm, self.momentum.numel(), dtype=torch.float32, device=task.device)

    def exchange_gradients(self, step: int) -> None:
        """Average momenta that nobody was told of."""
        self.momentum.lerp_(self.flat.gradients, 0.5)
        self.flat.gradients.copy_(self.momentum)
        self.ring.run(self.flat.gradients)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
