"""Adds up what experts made of a token without the gate's weights."""

from __future__ import annotations

from dataclasses import replace

import torch
from paceline.baselines.training import tutel
from paceline.baselines.training.tutel import Tutel
from torch import Tensor

from paceline import technique
from paceline.families.training.api.expert.routing import Routing
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="forgets-the-gate",
    family="training",
    implements=("expert_parallel",),
    summary="counts every expert alike",
    properties={"exact": True, "replicas": "identical"},
)
class ForgetsTheGate(Tutel):
    """Half of the weight for each of two."""

    def decode(self, slots_EGCD: Tensor, routing: Routing) -> Tensor:
        """Weigh alike."""
        alike = torch.full_like(routing.weights_GTk, 0.5) + 0 * routing.weights_GTk
        return super().decode(slots_EGCD, replace(routing, weights_GTk=alike))


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return tutel.cost(task, strategy="adaptive", slices=0)
