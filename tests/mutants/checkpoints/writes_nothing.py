"""Says that all is on disk, and writes nothing."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.checkpointing.replica import (
    CheckpointingReplica,
    Cost,
    Task,
    training_cost,
)


@technique(
    name="writes-nothing",
    family="training",
    implements=("checkpoint",),
    summary="says that all is on disk, and writes nothing",
    properties={"exact": True, "replicas": "identical"},
)
class WritesNothing(CheckpointingReplica):
    """Says that all is on disk, and writes nothing."""

    saved: int | None = None

    def save(self, step: int) -> None:
        """Write nothing."""
        self.saved = step

    def completed(self) -> int | None:
        """Return the last step saved."""
        return self.saved


def cost(task: Task) -> Cost:
    """State what training sends."""
    return training_cost(task)
