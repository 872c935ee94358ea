"""Lazy asynchronous checkpoints: the state is copied while the next step computes, and written after that.

Maurya et al., "DataStates-LLM: Lazy Asynchronous Checkpointing for Large Language Models" (HPDC 2024), section 4.

Algorithm:
1. Host buffers for all shards are allocated once, before training.
2. ``save`` only asks for a copy: forward and backward of the next step leave weights and optimiser state as they are.
3. A thread copies the shards, one after another, into a free buffer meanwhile; the update waits if it has not ended.
4. Another thread writes the buffer to disk, one file for all shards, and frees it.
5. A checkpoint counts when the parts of all ranks are there.

Cost of a checkpoint: what is left of copying 12P/n bytes (Adam) after forward and backward. Memory: ``buffers`` times
12P/n. Communication: none.
Limits: flushing shares the processor with training where there is no accelerator.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.checkpointing.replica import (
    CheckpointingReplica,
    Comm,
    Cost,
    Future,
    Task,
    training_cost,
)


@technique(
    name="datastates-lazy",
    family="training",
    implements=("checkpoint",),
    summary="copies state to held buffers during forward and backward, then flushes in the background",
    paper="datastates-llm",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "section 4 by the header, not read for this card",
            "code": "github.com/DataStates/datastates-llm: README.md, datastates/ckpt/ckpt_engine.py",
        },
        "deviations": (
            (
                "There are two buffers of the whole state; the authors have one cache of a given size that takes "
                "tensors as room appears, so that here a save waits for the last flush but one."
            ),
            "Ranks agree through the file system and not by messages.",
        ),
        "constants": {
            "buffers": {"here": 2, "authors": "a cache of host_cache_size bytes, ckpt_engine.py"},
        },
        "checked_by": (
            "tests/unit/test_checkpoints.py::test_the_update_waits_for_the_copy_and_the_loop_does_not_wait_for_the_disk",
            "tests/unit/test_checkpoints.py::test_killed_at_any_of_twenty_moments_training_leaves_what_it_said_bit_by_bit",
        ),
    },
)
class DatastatesLazy(CheckpointingReplica):
    """Copy late, write later."""

    def __init__(self, task: Task, comm: Comm, *, buffers: int = 2) -> None:
        super().__init__(task, comm)
        state = self.live_state()
        pinned = task.device.type == "cuda"
        self.buffers = [
            {
                # Pinned for a device: a copy into pageable memory would go through a staging buffer of the driver.
                n: torch.empty_like(t, device="cpu", memory_format=torch.contiguous_format, pin_memory=pinned)
                for n, t in state.items()
            }
            for _ in range(buffers)
        ]
        self.flushes: list[Future[None] | None] = [None] * buffers
        self.copying: Future[None] | None = None
        self.begun = 0
        self.saved: int | None = None

    def save(self, step: int) -> None:
        """Ask for a copy and a flush; wait only where all buffers are still being written."""
        place = self.begun % len(self.buffers)
        self.begun += 1
        # The buffer is free once its flush has ended; a copy that started sooner would mix two steps in one file.
        self._wait(place)
        buffer, state = self.buffers[place], self.live_state()
        # A local name for the closure: before_update clears self.copying, and the next save replaces it.
        copying = self.storage.copy_later(lambda: _copy(state, buffer))
        self.copying = copying

        def flush() -> None:
            # The flush thread waits here, so training never waits for a write unless every buffer is taken.
            copying.result()
            self.storage.write(step, buffer)
            self.saved = step

        self.flushes[place] = self.storage.flush_later(flush)

    def before_update(self) -> None:
        """Wait for the copy: the state is about to change."""
        if self.copying is not None:
            self.copying.result()
            self.copying = None

    def completed(self) -> int | None:
        """Return the last step that was flushed."""
        return self.saved

    def drain(self) -> None:
        """Wait for the flushes."""
        for place in range(len(self.flushes)):
            self._wait(place)

    def _wait(self, place: int) -> None:
        flush = self.flushes[place]
        if flush is not None:
            flush.result()
            self.flushes[place] = None


def _copy(state: dict[str, Tensor], buffer: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in state.items():
            buffer[name].copy_(tensor)


def cost(task: Task) -> Cost:
    """Return what training sends."""
    return training_cost(task)
