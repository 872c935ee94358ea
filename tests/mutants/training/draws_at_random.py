"""Adds noise that no seed governs."""

from __future__ import annotations

import torch

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="draws-at-random",
    family="training",
    implements=("data_parallel",),
    summary="adds noise that no seed governs",
    properties={"exact": False, "replicas": "apart"},
)
class DrawsAtRandom(FlatReplica):
    """Adds noise that no seed governs."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def exchange_gradients(self, step: int) -> None:
        """Never do the same twice."""
        self.flat.gradients.add_(torch.randn_like(self.flat.gradients), alpha=1e-6)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
