"""Says that its codes are others than those that it sent."""

from __future__ import annotations

from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="says-other-codes",
    family="training",
    implements=("fine_tune",),
    summary="says other codes than it sends",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class SaysOtherCodes(JustOneByte):
    """The log would stand for other weights."""

    def exchange_gradients(self, step: int) -> None:
        """Send the codes and change them."""
        super().exchange_gradients(step)
        if len(self.members) > 1:
            self.own.add_(1)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
