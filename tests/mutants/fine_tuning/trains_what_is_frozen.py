"""Moves weights that the point does not train."""

from __future__ import annotations

import torch
from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="trains-what-is-frozen",
    family="training",
    implements=("fine_tune",),
    summary="moves frozen weights",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class TrainsWhatIsFrozen(JustOneByte):
    """Shrinks the embedding, which nobody asked for."""

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take the step, and more."""
        super().update(step)
        self.model.get_parameter("embedding.weight").mul_(0.999)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
