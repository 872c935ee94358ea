"""Leaves the weights where the last loss was measured."""

from __future__ import annotations

from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="leaves-weights-perturbed",
    family="training",
    implements=("fine_tune",),
    summary="does not put its weights back",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class LeavesWeightsPerturbed(JustOneByte):
    """Forgets to return."""

    def probe(self, sequences_BS: Tensor, z_P: Tensor) -> tuple[float, float]:
        """Return the slope and stay on one side."""
        found = super().probe(sequences_BS, z_P)
        self.flat.values.add_(z_P, alpha=-self.task.epsilon)
        return found


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
