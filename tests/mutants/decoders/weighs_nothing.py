"""Adds what an expert made of a token as if its gate were sure."""

from __future__ import annotations

import torch
from paceline.baselines.training import ep_decode
from paceline.baselines.training.ep_decode import ExpertDecode
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="weighs-nothing",
    family="training",
    implements=("expert_inference",),
    summary="forgets the gate's weight",
    properties={"exact": True, "replicas": "identical"},
)
class WeighsNothing(ExpertDecode):
    """Every weight is one."""

    def route(self, layer: int, position: int, sequences_m: Tensor, h_mD: Tensor) -> tuple[Tensor, Tensor]:
        """Forget what the gate says."""
        experts_m, weights_m = super().route(layer, position, sequences_m, h_mD)
        return experts_m, torch.ones_like(weights_m)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return ep_decode.cost(task)
