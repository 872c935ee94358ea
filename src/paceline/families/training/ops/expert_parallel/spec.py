"""Ranks that share experts: what makes a point legal; free of torch."""

from __future__ import annotations

from paceline.base.counting import number_of
from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.families.training.core.planning.legality import estimate_s, number, problems
from paceline.families.training.core.planning.metrics import DERIVED
from paceline.families.training.core.planning.parameters import ALIKE_RANKS, ONE_PART
from paceline.families.training.core.planning.promises import Training
from paceline.families.training.ops.expert_parallel.metrics import METRICS
from paceline.families.training.ops.expert_parallel.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    top_k, experts = number(params, "top_k"), number(params, "experts")
    own = [f"a token cannot go to {top_k} of {number_of(experts, 'expert')}"] if top_k > experts else []
    return problems(params, own=own)


OPERATION = Operation(
    name="expert_parallel",
    summary="Ranks hold different experts of every layer, and tokens are sent to their experts and back.",
    interface="api.expert.replica:ExpertReplica",
    place=3,
    parameters=PARAMETERS,
    metrics=METRICS,
    properties=Training,
    check=check,
    estimate_s=estimate_s,
    derived=DERIVED,
    fixed={**ONE_PART, **ALIKE_RANKS},
)
