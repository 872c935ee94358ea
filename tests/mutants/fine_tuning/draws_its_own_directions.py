"""Draws directions from a seed that every rank has for itself."""

from __future__ import annotations

from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte
from torch import Tensor

from paceline import technique
from paceline.families.training.api.fine_tuning.directions import direction
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="draws-its-own-directions",
    family="training",
    implements=("fine_tune",),
    summary="draws directions from a seed of its own",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class DrawsItsOwnDirections(JustOneByte):
    """Honest but for the seed."""

    def direction(self, step: int, rank: int, probe: int) -> Tensor:
        """Return a direction that only this rank knows."""
        return direction(self.task.seed + self.comm.rank, step, rank, probe, self.task.num_parameters)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
