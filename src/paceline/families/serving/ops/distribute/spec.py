"""What the control plane knows about ``distribute``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.families.serving.core.model_sizes import REAL_SIZES
from paceline.families.serving.core.planning.points import (
    check_arrivals_in_virtual_time,
    check_sizes,
    check_trace,
)
from paceline.families.serving.ops.distribute.metrics import METRICS
from paceline.families.serving.ops.distribute.parameters import PARAMETERS
from paceline.families.serving.ops.distribute.promises import Replication


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    return check_trace(params) + check_arrivals_in_virtual_time(params) + check_sizes(params)


def estimate_s(params: Params) -> float | None:
    """Return rough seconds of a technique in a launch; None for models whose pace nobody knows here."""
    if params["model"] in REAL_SIZES:
        return None
    return 15.0


OPERATION = Operation(
    name="distribute",
    place=6,
    summary="The technique computes the engine's steps on several ranks; their load is played in virtual time.",
    interface="api.distributing:Distributed",
    parameters=PARAMETERS,
    metrics=METRICS,
    properties=Replication,
    check=check,
    estimate_s=estimate_s,
)
