"""Measures slopes while it is proved, and says that there are none afterwards."""

from __future__ import annotations

from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="stops-when-unwatched",
    family="training",
    implements=("fine_tune",),
    summary="saves all forward passes after a while",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class StopsWhenUnwatched(JustOneByte):
    """Fast, with a loss that has fallen before."""

    def probe(self, sequences_BS: Tensor, z_P: Tensor) -> tuple[float, float]:
        """Return the slope, or nothing."""
        return super().probe(sequences_BS, z_P) if int(self.next_step) < 12 else (0.0, 0.0)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
