"""Owns its stage, and holds the other stages' parameters as well."""

from __future__ import annotations

from paceline.baselines.training import one_f_one_b
from paceline.baselines.training.one_f_one_b import OneFOneB
from torch import nn

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="keeps-all-layers",
    family="training",
    implements=("pipeline_parallel",),
    summary="holds the whole model on every rank",
    properties={"exact": True, "replicas": "identical"},
)
class KeepsAllLayers(OneFOneB):
    """Frees nothing."""

    def _free_others(self, model: nn.Module) -> None:
        """Keep what belongs to other ranks."""


def cost(task: Task) -> Cost:
    """Return what the honest schedule sends."""
    return one_f_one_b.cost(task)
