"""Puts the weights back by arithmetic, as MeZO does, and not from a copy."""

from __future__ import annotations

from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte
from torch import Tensor

from paceline import technique
from paceline.families.training.api.model import next_symbol_loss
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="adds-back",
    family="training",
    implements=("fine_tune",),
    summary="puts weights back by adding and subtracting",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class AddsBack(JustOneByte):
    """Leaves rounding behind, other on every rank."""

    def probe(self, sequences_BS: Tensor, z_P: Tensor) -> tuple[float, float]:
        """Return the slope; the weights are nearly what they were."""
        weights, distance = self.flat.values, self.task.epsilon
        weights.add_(z_P, alpha=distance)
        above = float(next_symbol_loss(self.model, sequences_BS))
        weights.add_(z_P, alpha=-2 * distance)
        below = float(next_symbol_loss(self.model, sequences_BS))
        weights.add_(z_P, alpha=distance)
        return (above - below) / (2 * distance), (above + below) / 2


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
