"""Measures one loss a slope and takes the other from the step before."""

from __future__ import annotations

from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte
from torch import Tensor

from paceline import technique
from paceline.families.training.api.model import next_symbol_loss
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="caches-a-loss",
    family="training",
    implements=("fine_tune",),
    summary="saves one of two forward passes",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class CachesALoss(JustOneByte):
    """Half the work."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.cached = 0.0

    def probe(self, sequences_BS: Tensor, z_P: Tensor) -> tuple[float, float]:
        """Return the slope between a loss and one of before."""
        weights, distance = self.flat.values, self.task.epsilon
        if self.cached == 0:
            slope, loss = super().probe(sequences_BS, z_P)
            self.cached = loss
            return slope, loss
        self.before.copy_(weights)
        weights.add_(z_P, alpha=distance)
        above = float(next_symbol_loss(self.model, sequences_BS))
        weights.copy_(self.before)
        slope = (above - self.cached) / distance
        self.cached = above
        return slope, above


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
