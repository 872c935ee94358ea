"""Drops no token, where its experts have no room."""

from __future__ import annotations

from dataclasses import replace

import torch
from paceline.baselines.training import ep_alltoall
from paceline.baselines.training.ep_alltoall import ExpertAllToAll
from torch import Tensor

from paceline import technique
from paceline.families.training.api.expert.routing import Routing
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="has-room-for-all",
    family="training",
    implements=("expert_parallel",),
    summary="keeps the tokens that find no slot",
    properties={"exact": True, "replicas": "identical"},
)
class HasRoomForAll(ExpertAllToAll):
    """Better than asked, and not the same."""

    def mixture(self, layer: int, h_GTD: Tensor, routing: Routing) -> Tensor:
        """Give every expert as many slots as there are tokens."""
        kept = torch.ones_like(routing.kept_GTk)
        return super().mixture(layer, h_GTD, replace(routing, kept_GTk=kept, capacity=h_GTD.shape[1]))


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return ep_alltoall.cost(task)
