"""Training that loses peers: what makes a point legal; free of torch."""

from __future__ import annotations

from functools import partial

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.families.training.core.planning.legality import estimate_s, problems
from paceline.families.training.core.planning.parameters import ALIKE_RANKS, ONE_PART
from paceline.families.training.ops.churn.metrics import METRICS
from paceline.families.training.ops.churn.parameters import PARAMETERS, PEERS_START_S
from paceline.families.training.ops.churn.parameters import problems as faults


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    return problems(params, own=faults(params))


OPERATION = Operation(
    name="churn",
    summary="Peers train one model; one of their processes is killed, and another comes.",
    interface="api.place:Member",
    place=7,
    parameters=PARAMETERS,
    metrics=METRICS,
    check=check,
    estimate_s=partial(estimate_s, start_s=PEERS_START_S),
    fixed={**ONE_PART, **ALIKE_RANKS},
)
