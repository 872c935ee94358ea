"""Saves the state of the step before under the name of a step."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.training.api.checkpointing.replica import (
    CheckpointingReplica,
    Cost,
    Task,
    training_cost,
)


@technique(
    name="names-an-old-step",
    family="training",
    implements=("checkpoint",),
    summary="saves the state of the step before under the name of a step",
    properties={"exact": True, "replicas": "identical"},
)
class NamesAnOldStep(CheckpointingReplica):
    """Saves the state of the step before under the name of a step."""

    saved: int | None = None

    before: dict[str, Tensor] | None = None

    def save(self, step: int) -> None:
        """Save what was kept last time."""
        now = {name: tensor.clone() for name, tensor in self.live_state().items()}
        self.storage.write(step, self.before or now)
        self.before, self.saved = now, step

    def completed(self) -> int | None:
        """Return the last step saved."""
        return self.saved


def cost(task: Task) -> Cost:
    """State what training sends."""
    return training_cost(task)
