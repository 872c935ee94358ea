"""Sends zeros, whatever the slope is."""

from __future__ import annotations

from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="sends-nothing-of-worth",
    family="training",
    implements=("fine_tune",),
    summary="sends zeros",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class SendsNothingOfWorth(JustOneByte):
    """Learns nothing."""

    def encode(self, slopes: Tensor) -> Tensor:
        """Return codes that stand for nothing."""
        return super().encode(0 * slopes)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
