"""A rank's task, and a step of forward and backward on ranks that are threads, for tests of training techniques."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from thread_ranks import on_ranks_of_threads

from paceline.families.training.api.model import Transformer
from paceline.families.training.api.replica import Replica, Task
from paceline.families.training.api.sizes import SIZES, Size
from paceline.worker.communication.comm import Comm
from paceline.worker.communication.transport import ThreadHub, ThreadTransport

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
    hub = ThreadHub(ranks)

    def run(rank: int) -> tuple[Any, Any]:
        replica = kind(make_task(rank=rank, world_size=ranks, **task), make_comm(rank, hub))
        return replica, step(replica)

    return on_ranks_of_threads(run, ranks)


SMALL = Size(layers=2, width=16, heads=2)
"""Two chunks of 4096 parameters and a part of a third."""


def moves_of(steps: int, ranks: int, *, seed: int = 5) -> torch.Tensor:
    """Return what each rank's local steps would do to the parameters of ``SMALL``, (steps, ranks, P)."""
    count = sum(p.numel() for p in make_model(SMALL).parameters())
    return torch.randn(steps, ranks, count, generator=torch.Generator().manual_seed(seed)) * 0.01


def play(
    kind: Callable[[Task, Comm], Any], moves_SRP: torch.Tensor
) -> list[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Let a technique's ranks move as told instead of training.

    Returns:
        After each step, and after the end, each rank's own weights and those that it would ship.
    """
    steps, ranks, _ = moves_SRP.shape

    def run(replica: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        found = []
        for step in range(steps + 1):
            if step < steps:
                replica.flat.values.add_(moves_SRP[step, replica.comm.rank])
                replica.exchange_parameters(step)
            else:
                replica.finish()
            shipped = torch.cat([w.reshape(-1) for w in replica.weights()])
            found.append((replica.flat.values.clone(), shipped))
        return found

    results = on_ranks(kind, ranks, run, size=SMALL, steps=steps, optimizer_name="sgd")
    of_ranks = [found for _, found in results]
    return [([c[i][0] for c in of_ranks], [c[i][1] for c in of_ranks]) for i in range(steps + 1)]


def driven(kind: Callable[[Task, Comm], Any], gradients_SRP: torch.Tensor, rate: float) -> list[torch.Tensor]:
    """Let a technique's ranks of ``SMALL`` step along gradients as told; return all weights after each, (ranks, P)."""
    steps, ranks, _ = gradients_SRP.shape

    def run(replica: Any) -> list[torch.Tensor]:
        found = []
        replica.set_rate(rate)
        for step in range(steps):
            replica.flat.gradients.copy_(gradients_SRP[step, replica.comm.rank])
            replica.exchange_gradients(step)
            replica.update(step)
            replica.exchange_parameters(step)
            found.append(replica.flat.values.clone())
        return found

    results = on_ranks(kind, ranks, run, size=SMALL, steps=steps)
    return [torch.stack([found[i] for _, found in results]) for i in range(steps)]
