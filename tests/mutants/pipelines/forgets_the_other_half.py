"""Shares matrices, and takes its own half of the stream's gradient for the whole."""

from __future__ import annotations

from dataclasses import replace

from paceline.baselines.training import megatron_3d
from paceline.baselines.training.megatron_3d import Megatron3d
from torch import nn

from paceline import technique
from paceline.families.training.api.hybrid.matrices import ByOutputs
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="forgets-the-other-half",
    family="training",
    implements=("pipeline_parallel",),
    summary="adds up no gradient of the stream",
    properties={"exact": True, "replicas": "identical"},
)
class ForgetsTheOtherHalf(Megatron3d):
    """Copies the stream to all ranks, whose gradients of it stay apart."""

    def lay(self, layer: nn.Module) -> nn.Module:
        """Return a layer whose first matrices sum over this rank alone."""
        found = super().lay(layer)
        for module in found.modules():
            if isinstance(module, ByOutputs):
                module.group = replace(module.group, ranks=module.group.ranks[:1], place=0)
        return found


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return megatron_3d.cost(task, tensor=2, pipeline=2)
