"""Copies weights at once and moments only after the next update."""

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
    name="tears-moments-off",
    family="training",
    implements=("checkpoint",),
    summary="copies weights at once and moments only after the next update",
    properties={"exact": True, "replicas": "identical"},
)
class TearsMomentsOff(CheckpointingReplica):
    """Copies weights at once and moments only after the next update."""

    saved: int | None = None

    early: Tensor | None = None

    def save(self, step: int) -> None:
        """Write the last weights with the moments of now."""
        if self.early is not None:
            self.storage.write(step - 1, self.live_state() | {"weights": self.early})
            self.saved = step - 1
        self.early = self.share.data.clone()

    def drain(self) -> None:
        """Write the last one."""
        assert self.early is not None
        last = int(self.live_state()["step"])
        self.storage.write(last, self.live_state() | {"weights": self.early})
        self.saved = last

    def completed(self) -> int | None:
        """Return the last step saved."""
        return self.saved


def cost(task: Task) -> Cost:
    """State what training sends."""
    return training_cost(task)
