"""Adds exact slopes up through the backend, whose bytes nobody sees, beside the bytes."""

from __future__ import annotations

import torch
from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="uses-the-backend",
    family="training",
    implements=("fine_tune",),
    summary="adds slopes up through the backend",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class UsesTheBackend(JustOneByte):
    """Its bytes are for show."""

    def exchange_gradients(self, step: int) -> None:
        """Exchange bytes, then more."""
        super().exchange_gradients(step)
        if len(self.members) == self.comm.world_size:
            self.comm.backend.all_reduce(torch.ones(1))


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
