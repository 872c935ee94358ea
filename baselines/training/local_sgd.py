"""Local SGD: replicas train alone for H steps, then average their parameters.

Stich, "Local SGD Converges Fast and Communicates Little" (ICLR 2019), algorithm 1.

Algorithm: every rank takes H steps of the inner optimiser on its own batches; then θ ← mean over ranks of θ.
Cost of a synchronisation: 2·(n − 1)/n · 4P bytes in 2·(n − 1) messages; 1/H of synchronous training's.
Memory: scratch of 2/n · 4P.
Differences: the inner optimiser is the point's (AdamW unless told otherwise); its moments are not averaged.
Limits: with H = 1 and plain SGD it equals synchronous training; with Adam it does not.
"""

from __future__ import annotations

import torch

from paceline import technique
from paceline.families.training.exchange import RingAverage, ring_cost
from paceline.families.training.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.rounds import ends_round, num_rounds


@technique(
    name="local-sgd",
    family="training",
    implements=("data_parallel",),
    summary="H local steps, then the mean of all parameters",
    options={"sync_every": 20},
    properties={
        "exact": False,
        "replicas": "apart",
        "equals_ddp": {"optimizer": "sgd", "options": {"sync_every": 1}},
    },
)
class LocalSgd(FlatReplica):
    """Average parameters at the end of each round."""

    def __init__(self, task: Task, comm: Comm, sync_every: int = 20) -> None:
        super().__init__(task, comm)
        self.sync_every = sync_every
        count = self.flat.values.numel()
        self.ring = RingAverage(comm, count, dtype=torch.float32, device=task.device)

    def exchange_parameters(self, step: int) -> None:
        """Average the parameters when a round ends."""
        if ends_round(step, self.sync_every, self.task.steps):
            self.ring.run(self.flat.values)


def cost(task: Task, sync_every: int = 20) -> Cost:
    """Return the header's formula for all rounds."""
    sent, messages = ring_cost(task.num_parameters, task.world_size)
    rounds = num_rounds(sync_every, task.steps)
    return Cost(sent_bytes=rounds * sent, peak_bytes=sent, messages=rounds * messages)
