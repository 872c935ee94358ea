"""Declares that its slopes may have any error, and measures none."""

from __future__ import annotations

from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="declares-any-error",
    family="training",
    implements=("fine_tune",),
    summary="guesses signs and declares a large error",
    properties={"exact": False, "replicas": "identical", "slope_error": 1000000.0},
)
class DeclaresAnyError(JustOneByte):
    """Sends a magnitude and a coin's sign."""

    def encode(self, slopes: Tensor) -> Tensor:
        """Return codes whose sign is that of the step's number."""
        sign = 1 - 2 * (int(self.next_step) % 2)
        return super().encode(sign * slopes.abs())


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
