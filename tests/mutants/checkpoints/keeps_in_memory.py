"""Keeps states in memory and reads no file."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from paceline import technique
from paceline.families.training.api.checkpointing.replica import (
    CheckpointingReplica,
    Cost,
    Task,
    training_cost,
)


@technique(
    name="keeps-in-memory",
    family="training",
    implements=("checkpoint",),
    summary="keeps states in memory and reads no file",
    properties={"exact": True, "replicas": "identical"},
)
class KeepsInMemory(CheckpointingReplica):
    """Keeps states in memory and reads no file."""

    saved: int | None = None

    memory: ClassVar[dict[int, dict[str, Tensor]]] = {}

    def save(self, step: int) -> None:
        """Keep the state here, and write something else."""
        self.memory[step] = {name: tensor.clone() for name, tensor in self.live_state().items()}
        self.storage.write(step, {"nothing": self.share.data[:0]})
        self.saved = step

    def restore(self, step: int) -> None:
        """Take up what was kept."""
        self.take_up(self.memory[step])

    def completed(self) -> int | None:
        """Return the last step saved."""
        return self.saved


def cost(task: Task) -> Cost:
    """State what training sends."""
    return training_cost(task)
