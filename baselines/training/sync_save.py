"""Synchronous saving: training stands still until a checkpoint is on disk.

The negative control of asynchronous saving: what a call of ``torch.save`` after a step does.

Algorithm: after an update every rank writes its share of weights and optimiser state with ``torch.save``, flushes the
file to the disk, and renames it.

Cost of a checkpoint: the time to serialise and write 12P/n bytes (Adam). Communication and memory: those of training.
Differences: bytes are digested while they are written, as those of all techniques are.
Limits: one file a rank, for as many ranks as wrote it.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.checkpointing.replica import (
    CheckpointingReplica,
    Comm,
    Cost,
    Task,
    training_cost,
)


@technique(
    name="sync-save",
    family="training",
    implements=("checkpoint",),
    summary="training waits until torch.save has written and flushed every rank's share",
    properties={"exact": True, "replicas": "identical"},
)
class SyncSave(CheckpointingReplica):
    """Save at once."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.saved: int | None = None

    def save(self, step: int) -> None:
        """Write, flush and commit a copy: of a view ``torch.save`` would write all that lies behind it."""
        own = {name: tensor.clone() for name, tensor in self.live_state().items()}
        # Returns after fsync and rename: the whole time counts as a stop of training, which is what this control shows.
        self.storage.write_object(step, own)
        self.saved = step

    def completed(self) -> int | None:
        """Return the last step saved: ``save`` returns when it is on disk."""
        return self.saved

    def restore(self, step: int) -> None:
        """Read this rank's file."""
        self.take_up(self.storage.read_object(step))


def cost(task: Task) -> Cost:
    """Return what training sends."""
    return training_cost(task)
