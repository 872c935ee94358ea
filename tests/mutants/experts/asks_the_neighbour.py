"""Lets every token be worked on by its expert's neighbour on the same rank."""

from __future__ import annotations

from paceline.baselines.training import ep_alltoall
from paceline.baselines.training.ep_alltoall import ExpertAllToAll
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="asks-the-neighbour",
    family="training",
    implements=("expert_parallel",),
    summary="uses the wrong expert's weights",
    properties={"exact": True, "replicas": "identical"},
)
class AsksTheNeighbour(ExpertAllToAll):
    """Off by one."""

    def run_experts(self, layer: int, slots_EGCD: Tensor) -> Tensor:
        """Shift experts by one, and back."""
        return super().run_experts(layer, slots_EGCD.roll(1, dims=0)).roll(-1, dims=0)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return ep_alltoall.cost(task)
