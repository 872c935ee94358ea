"""Ranks that share every sequence: what makes a point legal; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.families.training.core.planning.legality import estimate_s, problems
from paceline.families.training.core.planning.metrics import DERIVED
from paceline.families.training.core.planning.parameters import ALIKE_RANKS, ONE_PART
from paceline.families.training.core.planning.promises import Training
from paceline.families.training.ops.sequence_parallel.metrics import METRICS
from paceline.families.training.ops.sequence_parallel.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    return problems(params, whole_batch=True)


OPERATION = Operation(
    name="sequence_parallel",
    summary="Ranks hold different positions of every sequence, and exchange what mixes positions.",
    interface="api.sequence.replica:SequenceReplica",
    place=2,
    parameters=PARAMETERS,
    metrics=METRICS,
    properties=Training,
    check=check,
    estimate_s=estimate_s,
    derived=DERIVED,
    fixed={**ONE_PART, **ALIKE_RANKS},
)
