"""Sends the others' keys and values, and does not remember those that come."""

from __future__ import annotations

import torch
from paceline.baselines.training import exflow
from paceline.baselines.training.exflow import ExFlow
from torch import Tensor

from paceline import technique
from paceline.families.training.api.expert.rows import share_rows
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="forgets-contexts",
    family="training",
    implements=("expert_inference",),
    summary="attends to what it made itself",
    properties={"exact": True, "replicas": "identical"},
)
class ForgetsContexts(ExFlow):
    """Right at the first position."""

    def _make_coherent(self, position: int, made: list[Tensor]) -> None:
        """Exchange for show."""
        share_rows(self.comm, torch.tensor([len(rows) for rows in made]), torch.cat(made))


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return exflow.cost(task, placement="affinity")
