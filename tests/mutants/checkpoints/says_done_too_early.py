"""Says that a checkpoint is on disk when it has only been copied."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.checkpointing.replica import (
    CheckpointingReplica,
    Cost,
    Task,
    training_cost,
)


@technique(
    name="says-done-too-early",
    family="training",
    implements=("checkpoint",),
    summary="says that a checkpoint is on disk when it has only been copied",
    properties={"exact": True, "replicas": "identical"},
)
class SaysDoneTooEarly(CheckpointingReplica):
    """Says that a checkpoint is on disk when it has only been copied."""

    saved: int | None = None

    def save(self, step: int) -> None:
        """Copy now, write later, and say that it is done."""
        copied = {name: tensor.clone() for name, tensor in self.live_state().items()}
        self.flush = self.storage.flush_later(lambda: self.storage.write(step, copied))
        self.saved = step

    def drain(self) -> None:
        """Wait for the file."""
        self.flush.result()

    def completed(self) -> int | None:
        """Return the last step saved."""
        return self.saved


def cost(task: Task) -> Cost:
    """State what training sends."""
    return training_cost(task)
