"""Checkpoints: what makes a point legal; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.families.training.core.planning.legality import estimate_s, problems
from paceline.families.training.core.planning.metrics import DERIVED
from paceline.families.training.core.planning.parameters import ALIKE_RANKS, ONE_PART
from paceline.families.training.core.planning.promises import Training
from paceline.families.training.ops.checkpoint.metrics import METRICS
from paceline.families.training.ops.checkpoint.parameters import PARAMETERS

LEAST_WINDOWS = 3
"""Warm-up, one that saves, and one that does not."""


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    return problems(params, least_windows=LEAST_WINDOWS)


OPERATION = Operation(
    name="checkpoint",
    summary="Ranks train one model on different sequences, and its state is saved meanwhile.",
    interface="api.checkpointing.replica:CheckpointingReplica",
    place=6,
    parameters=PARAMETERS,
    metrics=METRICS,
    properties=Training,
    check=check,
    estimate_s=estimate_s,
    derived=DERIVED,
    fixed={**ONE_PART, **ALIKE_RANKS},
)
