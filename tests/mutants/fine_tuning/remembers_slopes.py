"""Decodes its own bytes to the slopes that it remembers."""

from __future__ import annotations

import torch
from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="remembers-slopes",
    family="training",
    implements=("fine_tune",),
    summary="decodes bytes to what it remembers",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class RemembersSlopes(JustOneByte):
    """A code stands for what was last encoded as it."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.memory: dict[int, float] = {}

    def encode(self, slopes: Tensor) -> Tensor:
        """Remember what was rounded."""
        codes = super().encode(slopes)
        self.memory.update(zip(codes[:, 0].tolist(), slopes.tolist(), strict=True))
        return codes

    def decode(self, codes: Tensor) -> Tensor:
        """Return slopes that no byte holds."""
        found = super().decode(codes).tolist()
        known = [self.memory.get(int(c), s) for c, s in zip(codes[:, 0].tolist(), found, strict=True)]
        return torch.tensor(known, dtype=torch.float64)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
