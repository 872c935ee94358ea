"""Synchronous data parallelism with one ring all-reduce of all gradients after backward.

The textbook method (ring all-reduce: Patarasuk and Yuan, 2009), through the byte-counting communicator: the reference
for every statement about bytes, since backends' own collectives move what only the kernel can tell.

Algorithm: backward leaves all gradients in one vector; the ring averages it; every rank takes the same step.
Cost of a step: 2·(n − 1)/n · 4P bytes in 2·(n − 1) messages for each rank. Memory: scratch of 2/n · 4P.
Differences: one bucket, no overlap with backward (``ddp`` has both). Limits: the slowest rank sets the pace.
"""

from __future__ import annotations

import torch

from paceline import technique
from paceline.families.training.exchange import RingAverage, ring_cost
from paceline.families.training.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="ddp-ring",
    family="training",
    implements=("data_parallel", "fine_tune"),
    summary="one ring all-reduce of all gradients after backward",
    properties={"exact": True, "replicas": "identical"},
)
class DdpRing(FlatReplica):
    """Average the gradient vector over ranks."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        count = self.flat.values.numel()
        self.ring = RingAverage(comm, count, dtype=torch.float32, device=task.device)

    def exchange_gradients(self, step: int) -> None:
        """Average the gradients."""
        self.ring.run(self.flat.gradients)


def cost(task: Task) -> Cost:
    """Return the header's formula."""
    sent, messages = ring_cost(task.num_parameters, task.world_size)
    return Cost(sent_bytes=task.steps * sent, peak_bytes=sent, messages=task.steps * messages)
