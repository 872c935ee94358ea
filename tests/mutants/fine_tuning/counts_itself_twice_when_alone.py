"""Divides by all ranks, also by one that has not joined yet."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="counts-itself-twice-when-alone",
    family="training",
    implements=("fine_tune",),
    summary="divides by ranks that are not there",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class CountsItselfTwiceWhenAlone(JustOneByte):
    """Right when everybody takes part."""

    @torch.no_grad()
    def apply(self, step: int, members: Sequence[int], codes: Tensor) -> None:
        """Take the step with the wrong divisor."""
        before = self.flat.values.clone()
        super().apply(step, members, codes)
        moved = self.flat.values - before
        self.flat.values.copy_(before.add_(moved, alpha=len(members) / self.comm.world_size))


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
