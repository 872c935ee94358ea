"""Delivers the first of its sequences twice."""

from __future__ import annotations

import torch
from paceline.baselines.training import ep_decode
from paceline.baselines.training.ep_decode import ExpertDecode
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="delivers-twice",
    family="training",
    implements=("expert_inference",),
    summary="leaves the last sequence out for the first",
    properties={"exact": True, "replicas": "identical"},
)
class DeliversTwice(ExpertDecode):
    """As many as it should, and not the same."""

    def decode(self, position: int, symbols_B: Tensor) -> tuple[Tensor, Tensor]:
        """Put the first in the place of the last."""
        sequences_m, logits_mV = super().decode(position, symbols_B)
        index = torch.arange(len(sequences_m))
        index[-1] = 0
        return sequences_m[index], logits_mV[index]


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return ep_decode.cost(task)
