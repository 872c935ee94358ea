"""Saves what it would ship, and not where its replicas are."""

from __future__ import annotations

from typing import Any

from paceline.baselines.training.diloco import DiLoCo

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="saves-global-weights",
    family="training",
    implements=("data_parallel",),
    summary="saves what it would ship, and not where its replicas are",
    properties={"exact": False, "replicas": "identical", "agree": "rounds"},
)
class SavesGlobalWeights(DiLoCo):
    """DiLoCo whose replicas go back to the last round's end when they are taken up."""

    def __init__(self, task: Task, comm: Comm, *, sync_every: int = 20) -> None:
        super().__init__(task, comm, sync_every=sync_every)

    def state_dict(self) -> dict[str, Any]:
        """Return the global weights as the replica's own."""
        return super().state_dict() | {"weights": [self.slow.clone()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Cut the one vector into parameters."""
        (slow,) = state["weights"]
        super().load_state_dict(state | {"weights": self.flat.pieces(slow)})


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
