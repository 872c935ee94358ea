"""Saves weights and no state of the optimiser."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.checkpointing.replica import (
    CheckpointingReplica,
    Cost,
    Task,
    training_cost,
)


@technique(
    name="forgets-moments",
    family="training",
    implements=("checkpoint",),
    summary="saves weights and no state of the optimiser",
    properties={"exact": True, "replicas": "identical"},
)
class ForgetsMoments(CheckpointingReplica):
    """Saves weights and no state of the optimiser."""

    saved: int | None = None

    def save(self, step: int) -> None:
        """Save weights alone."""
        self.storage.write(step, {"weights": self.share.data})
        self.saved = step

    def restore(self, step: int) -> None:
        """Take up weights; moments begin anew."""
        self.take_up(self.live_state() | self.storage.read(step))

    def completed(self) -> int | None:
        """Return the last step saved."""
        return self.saved


def cost(task: Task) -> Cost:
    """State what training sends."""
    return training_cost(task)
