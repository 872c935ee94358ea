"""PyTorch's asynchronous distributed checkpoints: copied to the host at once, written in a thread of the library.

``torch.distributed.checkpoint.async_save`` of the installed PyTorch.

Algorithm:
1. ``save`` waits for the checkpoint before, and copies this rank's share of the state to the host.
2. A thread of the library serialises the copy, writes and flushes it, with metadata beside it.

Cost of a checkpoint: a copy of 12P/n bytes (Adam), and what is left of the one before. Memory: the copy.
Differences: every rank saves a checkpoint of its own (``no_dist``), so that the library's thread does not use the
process group while training does; the family's manifest says when all are there.
Limits: the thread serialises with the interpreter's lock held in part, beside training.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.checkpointing import library
from paceline.families.training.api.checkpointing.replica import (
    CheckpointingReplica,
    Comm,
    Future,
    Task,
)


@technique(
    name="dcp-async",
    family="training",
    implements=("checkpoint",),
    summary="PyTorch's own: async_save of distributed checkpoints",
    properties={"exact": True, "replicas": "identical"},
)
class DcpAsync(CheckpointingReplica):
    """Let the library copy and write."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.flush: Future[None] | None = None
        self.saved: int | None = None

    def save(self, step: int) -> None:
        """Wait for the last checkpoint, and begin the next."""
        # One at a time: a second checkpoint that is begun meanwhile would hold a second host copy.
        self.drain()
        written = library.save_async(self.live_state(), self.storage.writing(step))

        def commit() -> None:
            # After the library has synced its files, or the manifest would vouch for data not yet on disk.
            written.result()
            self.storage.commit(step)
            self.saved = step

        self.flush = self.storage.flush_later(commit)

    def completed(self) -> int | None:
        """Return the last step that was committed."""
        return self.saved

    def drain(self) -> None:
        """Wait for the last checkpoint."""
        if self.flush is not None:
            self.flush.result()
            self.flush = None

    def restore(self, step: int) -> None:
        """Let the library read this rank's part."""
        state = self.live_state()
        library.load(state, self.storage.part(step, self.comm.rank))
        self.take_up(state)


def cost(task: Task) -> None:
    """Return nothing: the library may use the process group, so that nobody can tell what training sends."""
