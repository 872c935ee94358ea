"""Synchronous data parallelism with one ring all-reduce of all gradients after backward.

The textbook method (ring all-reduce: Patarasuk and Yuan, 2009), through the byte-counting communicator: the reference
for every statement about bytes, since backends' own collectives move what only the kernel can tell.

Algorithm: backward leaves all gradients in one vector; the ring averages it; every rank takes the same step.
Cost of a step: 2·(n − 1)/n · 4P bytes in 2·(n − 1) messages for each rank, of which 2·(n − 1)/g · 4P in all go between
groups of g consecutive ranks where there are several; to a rank that comes back, weights and the optimiser's state, 12P
with Adam. Memory: scratch of 2/n · 4P.
Differences: one bucket, no overlap with backward (``ddp`` has both). Limits: the slowest rank sets the pace.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline import technique
from paceline.families.training.api.absence import ring_bytes, welcome
from paceline.families.training.api.exchange import RingAverage
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.api.sharded import largest_share


@technique(
    name="ddp-ring",
    family="training",
    implements=("data_parallel", "fine_tune"),
    summary="one ring all-reduce of all gradients after backward",
    properties={"exact": True, "replicas": "identical", "elastic": True},
)
class DdpRing(FlatReplica):
    """Average the gradient vector over ranks."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.ring = self._ring(self.members)

    def _ring(self, members: Sequence[int]) -> RingAverage:
        count, device = self.flat.values.numel(), self.task.device
        return RingAverage(self.comm, count, dtype=torch.float32, device=device, members=members)

    def exchange_gradients(self, step: int) -> None:
        """Average the gradients."""
        self.ring.run(self.flat.gradients)

    def change_members(self, step: int, members: tuple[int, ...]) -> None:
        """Average over those who are there; who comes back takes up all that training has become."""
        before, self.members = self.members, members
        if self.comm.rank in members:
            # Sorted: both sides must send and receive the state in one order, whatever order Adam made it in.
            state = self.optimizer.state[self.flat.parameter]
            welcome(self.comm, before, members, [self.flat.values, *(state[name] for name in sorted(state))])
            # Chunks depend on the number of members. No exchange is under way between steps.
            self.ring = self._ring(members)


def cost(task: Task) -> Cost:
    """Return the header's formula."""
    adam = task.optimizer_name == "adamw"
    sent, peak, messages = ring_bytes(
        world_size=task.world_size,
        steps=task.steps,
        exchanges=range(task.steps),
        count=task.num_parameters,
        absence=task.absence,
        # Weights, two moments and Adam's step count, which is one float32 more: four tensors, a message each.
        welcome_bytes=4 * (3 * task.num_parameters + 1) if adam else 4 * task.num_parameters,
        welcome_messages=4 if adam else 1,
    )
    longest = largest_share([task.num_parameters], task.world_size)
    return Cost(
        sent_bytes=sent,
        peak_bytes=peak,
        messages=messages,
        state_bytes=task.whole_state_bytes,
        # a ring of fewer ranks has longer chunks, and nobody is told when memory is counted
        scratch_bytes=8 * longest * (task.world_size > 1) if task.absence is None else None,
    )
