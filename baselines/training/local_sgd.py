"""Local SGD: replicas train alone for H steps, then average their parameters.

Stich, "Local SGD Converges Fast and Communicates Little" (ICLR 2019), algorithm 1.

Algorithm: every rank takes H steps of the inner optimiser on its own batches; then θ ← mean over ranks of θ.
Cost of a synchronisation: 2·(n − 1)/n · 4P bytes in 2·(n − 1) messages; 1/H of synchronous training's.
Memory: scratch of 2/n · 4P. To a rank that comes back, 4P.
Differences: the inner optimiser is the point's (AdamW unless told otherwise); its moments are not averaged.
Limits: with H = 1 and plain SGD it equals synchronous training; with Adam it does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline import technique
from paceline.families.training.api.absence import ring_bytes, welcome
from paceline.families.training.api.exchange import RingAverage
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.api.rounds import ends_round, round_ends


@technique(
    name="local-sgd",
    family="training",
    implements=("data_parallel",),
    summary="H local steps, then the mean of all parameters",
    properties={
        "exact": False,
        "replicas": "apart",
        "agree": "rounds",
        "equals_ddp": {"optimizer": "sgd", "arguments": {"sync_every": 1}},
        "elastic": True,
    },
)
class LocalSgd(FlatReplica):
    """Average parameters at the end of each round."""

    def __init__(self, task: Task, comm: Comm, *, sync_every: int = 20) -> None:
        super().__init__(task, comm)
        self.sync_every = sync_every
        self.ring = self._ring(self.members)

    def _ring(self, members: Sequence[int]) -> RingAverage:
        count, device = self.flat.values.numel(), self.task.device
        return RingAverage(self.comm, count, dtype=torch.float32, device=device, members=members)

    def exchange_parameters(self, step: int) -> None:
        """Average the parameters when a round ends."""
        if ends_round(step, self.sync_every, self.task.steps):
            # Adam's moments stay local, which is why H = 1 equals synchronous training with plain SGD only.
            self.ring.run(self.flat.values)

    def change_members(self, step: int, members: tuple[int, ...]) -> None:
        """Average over those who are there; who comes back begins with the parameters of one of them."""
        before, self.members = self.members, members
        if self.comm.rank in members:
            welcome(self.comm, before, members, [self.flat.values])
            self.ring = self._ring(members)


def cost(task: Task, *, sync_every: int) -> Cost:
    """Return the header's formula for all rounds."""
    sent, peak, messages = ring_bytes(
        world_size=task.world_size,
        steps=task.steps,
        exchanges=round_ends(sync_every, task.steps),
        count=task.num_parameters,
        absence=task.absence,
        welcome_bytes=4 * task.num_parameters,
        welcome_messages=1,
    )
    return Cost(sent_bytes=sent, peak_bytes=peak, messages=messages)
