"""Saves the first state and never again."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.checkpointing.replica import (
    CheckpointingReplica,
    Cost,
    Task,
    training_cost,
)


@technique(
    name="saves-once",
    family="training",
    implements=("checkpoint",),
    summary="saves the first state and never again",
    properties={"exact": True, "replicas": "identical"},
)
class SavesOnce(CheckpointingReplica):
    """Saves the first state and never again."""

    saved: int | None = None

    def save(self, step: int) -> None:
        """Save the first one."""
        if self.saved is None:
            self.storage.write(step, self.live_state())
        self.saved = step

    def completed(self) -> int | None:
        """Return the last step saved."""
        return self.saved


def cost(task: Task) -> Cost:
    """State what training sends."""
    return training_cost(task)
