"""Copies in the background, and lets the update change what is being copied."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.checkpointing.replica import (
    CheckpointingReplica,
    Cost,
    Task,
    training_cost,
)


@technique(
    name="waits-for-nothing",
    family="training",
    implements=("checkpoint",),
    summary="copies in the background, and lets the update change what is being copied",
    properties={"exact": True, "replicas": "identical"},
)
class WaitsForNothing(CheckpointingReplica):
    """Copies in the background, and lets the update change what is being copied."""

    saved: int | None = None

    def save(self, step: int) -> None:
        """Copy and write when there is time."""
        state = self.live_state()

        def flush() -> None:
            self.storage.write(step, {name: tensor.clone() for name, tensor in state.items()})
            self.saved = step

        self.flush = self.storage.flush_later(flush)

    def drain(self) -> None:
        """Wait for the file."""
        self.flush.result()

    def completed(self) -> int | None:
        """Return the last step saved."""
        return self.saved


def cost(task: Task) -> Cost:
    """State what training sends."""
    return training_cost(task)
