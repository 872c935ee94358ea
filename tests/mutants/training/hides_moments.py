"""Keeps a whole copy of the optimiser's state where no optimiser and no checkpoint knows of it."""

from __future__ import annotations

import torch

from paceline import technique
from paceline.families.training.api.exchange import RingAverage
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="hides-moments",
    family="training",
    implements=("data_parallel",),
    summary="holds moments among its buffers and states the rest",
    properties={"exact": True, "replicas": "identical"},
)
class HidesMoments(FlatReplica):
    """Keeps a whole copy of the optimiser's state where no optimiser and no checkpoint knows of it."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        count = self.flat.values.numel()
        self.ring = RingAverage(comm, count, dtype=torch.float32, device=task.device)
        self.buffers = {"moments": torch.zeros(2, count)}

    def exchange_gradients(self, step: int) -> None:
        """Average."""
        self.ring.run(self.flat.gradients)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return Cost(state_bytes=task.whole_state_bytes, scratch_bytes=4 * task.num_parameters)
