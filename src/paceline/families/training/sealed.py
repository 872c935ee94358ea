"""What trains, counts and judges, some of which techniques build on: nothing in it may be replaced by one of them."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from types import ModuleType

from paceline.families.training.api import model, replica, soundness, storage
from paceline.families.training.api.checkpointing import atoms
from paceline.families.training.api.checkpointing import replica as checkpointing_replica
from paceline.families.training.api.expert import decoder, placement, routes_cost, routing, rows
from paceline.families.training.api.expert import layer as expert_layer
from paceline.families.training.api.expert import replica as expert_replica
from paceline.families.training.api.fine_tuning import directions, probing
from paceline.families.training.api.pipeline import deferred, executor, schedule
from paceline.families.training.api.sequence import blocks, exchange, layout, states
from paceline.families.training.api.sequence import replica as sequence_replica
from paceline.families.training.core import (
    agreement,
    arm,
    bias,
    carried,
    dispersions,
    figures,
    gate,
    judging,
    oracle,
    seat,
    serial,
    setting,
    traffic,
    unchanged,
)
from paceline.families.training.ops.checkpoint import course, proof
from paceline.families.training.ops.expert_inference import reading, traces
from paceline.families.training.ops.expert_parallel import owners, probe
from paceline.families.training.ops.fine_tune import joining, ledger
from paceline.families.training.ops.pipeline_parallel import simulator, timeline
from paceline.families.training.ops.sequence_parallel import flops
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
    "checkpoint": ("paceline.families.training.api.checkpointing.library",),
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
