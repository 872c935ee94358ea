"""Lets every row be worked on by another expert of the rank."""

from __future__ import annotations

from paceline.baselines.training import exflow
from paceline.baselines.training.exflow import ExFlow
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="takes-the-wrong-expert",
    family="training",
    implements=("expert_inference",),
    summary="uses one expert of a rank for all rows",
    properties={"exact": True, "replicas": "identical"},
)
class TakesTheWrongExpert(ExFlow):
    """Right for one expert of each rank."""

    def work(self, layer: int, h_mD: Tensor, experts_m: Tensor) -> Tensor:
        """Take the first expert of this rank."""
        return super().work(
            layer, h_mD, experts_m.new_full(experts_m.shape, self.placement[layer].index(self.comm.rank))
        )


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return exflow.cost(task, placement="affinity")
