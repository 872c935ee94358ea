"""Weighs experts as the gate says, and does not tell the gate what came of it."""

from __future__ import annotations

from dataclasses import replace

from paceline.baselines.training import tutel
from paceline.baselines.training.tutel import Tutel
from torch import Tensor

from paceline import technique
from paceline.families.training.api.expert.routing import Routing
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="teaches-no-gate",
    family="training",
    implements=("expert_parallel",),
    summary="stops the gradient before the gate",
    properties={"exact": True, "replicas": "identical"},
)
class TeachesNoGate(Tutel):
    """Right forward."""

    def decode(self, slots_EGCD: Tensor, routing: Routing) -> Tensor:
        """Leave the gate without a gradient."""
        told = routing.weights_GTk.detach() + 0 * routing.weights_GTk
        return super().decode(slots_EGCD, replace(routing, weights_GTk=told))


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return tutel.cost(task, strategy="adaptive", slices=0)
