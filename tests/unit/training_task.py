"""A rank's task, and a step of forward and backward on ranks that are threads, for tests of training techniques."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from paceline.families.training.model import Transformer
from paceline.families.training.replica import Replica, Task
from paceline.families.training.sizes import SIZES, Size
from paceline.worker.comm import Comm
from paceline.worker.transport import ThreadHub, ThreadTransport

JOIN_S = 60


def make_model(size: str | Size = "nano", context: int = 16, seed: int = 1) -> Transformer:
    dimensions = SIZES[size] if isinstance(size, str) else size
    model = Transformer(dimensions, vocabulary=64, context=context)
    model.initialise(seed)
    return model


def make_task(*, size: str | Size = "nano", context: int = 16, batch: int = 4, **changes: Any) -> Task:
    """Return the task of one rank on the CPU; ``changes`` are fields of ``Task``."""
    fields: dict[str, Any] = {
        "model": make_model(size, context),
        "rank": 0,
        "world_size": 1,
        "device": torch.device("cpu"),
        "seed": 3,
        "steps": 100,
        "optimizer_name": "adamw",
        "peak_rate": 0.01,
        "warmup_steps": 10,
        "tokens": batch * context,
        "context": context,
    }
    return Task(**(fields | changes))


def make_comm(rank: int = 0, hub: ThreadHub | None = None) -> Comm:
    return Comm(ThreadTransport(hub or ThreadHub(1), rank))


def on_ranks(
    kind: Callable[[Task, Comm], Replica], ranks: int, step: Callable[[Replica], Any], **task: Any
) -> list[tuple[Any, Any]]:
    """Make a technique on ranks that are threads and let each take a step; return (replica, what it gave) by rank."""
    hub, found = ThreadHub(ranks), {}

    def run(rank: int) -> None:
        replica = kind(make_task(rank=rank, world_size=ranks, **task), make_comm(rank, hub))
        found[rank] = replica, step(replica)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_S)
    return [found[rank] for rank in range(ranks)]
