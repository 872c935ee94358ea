"""Leaves the last token of the first sequence at home, and sends what the honest one would."""

from __future__ import annotations

from paceline.baselines.training import ep_alltoall
from paceline.baselines.training.ep_alltoall import ExpertAllToAll
from torch import Tensor

from paceline import technique
from paceline.families.training.api.expert.routing import Routing
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="drops-a-token",
    family="training",
    implements=("expert_parallel",),
    summary="drops one token that had a slot",
    properties={"exact": True, "replicas": "identical"},
)
class DropsAToken(ExpertAllToAll):
    """Right for all others."""

    def encode(self, h_GTD: Tensor, routing: Routing) -> Tensor:
        """Drop it."""
        routing.kept_GTk[0, -1] = False
        return super().encode(h_GTD, routing)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return ep_alltoall.cost(task)
