"""What trains, counts and judges, some of which techniques build on: nothing in it may be replaced by one of them."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from types import ModuleType

from paceline.families.training import (
    agreement,
    arm,
    bias,
    carried,
    dispersions,
    figures,
    flops,
    gate,
    judging,
    model,
    oracle,
    owners,
    replica,
    seat,
    serial,
    setting,
    traffic,
    unchanged,
)
from paceline.families.training.checkpointing import atoms, course, proof, soundness, storage
from paceline.families.training.checkpointing import replica as checkpointing_replica
from paceline.families.training.expert import (
    decoder,
    placement,
    probe,
    reading,
    routes_cost,
    routing,
    rows,
    traces,
)
from paceline.families.training.expert import layer as expert_layer
from paceline.families.training.expert import replica as expert_replica
from paceline.families.training.fine_tuning import directions, joining, ledger, probing
from paceline.families.training.pipeline import deferred, executor, schedule, simulator, timeline
from paceline.families.training.sequence import blocks, exchange, layout, states
from paceline.families.training.sequence import replica as sequence_replica
from paceline.worker import comm

_ALWAYS: tuple[ModuleType, ...] = (
    *(agreement, arm, bias, carried, dispersions, figures, flops, gate, judging, model, oracle, owners),
    *(replica, seat, serial, setting, traffic, unchanged),
    *(atoms, course, proof, soundness, storage, checkpointing_replica),
    *(directions, joining, ledger, probing),
    *(deferred, executor, schedule, simulator, timeline),
    *(blocks, exchange, layout, states, sequence_replica, comm),
    *(decoder, placement, probe, reading, routes_cost, routing, rows, traces, expert_layer, expert_replica),
)

_CHURN = "paceline.families.training.churn"
_FOR_OPERATIONS = {
    "checkpoint": ("paceline.families.training.checkpointing.library",),
    "churn": (
        *(f"{_CHURN}.{name}" for name in ("judge", "part", "place", "scenario", "script")),
        *(
            f"paceline.families.collectives.scenarios.{name}"
            for name in ("hosting", "peers", "playing", "wire")
        ),
    ),
}
"""What serves one operation only: PyTorch's distributed checkpoints with DTensor, which take long to import, and what
loses peers."""


def sealed(operations: Collection[str]) -> tuple[ModuleType, ...]:
    """Import and return what techniques of these operations may build on."""
    wanted = sorted(_FOR_OPERATIONS.keys() & set(operations))
    names = [name for operation in wanted for name in _FOR_OPERATIONS[operation]]
    return (*_ALWAYS, *(importlib.import_module(name) for name in names))
