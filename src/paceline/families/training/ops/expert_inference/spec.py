"""Ranks that share experts at inference: what makes a point legal; free of torch."""

from __future__ import annotations

from paceline.base.counting import number_of
from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.families.training.core.planning.legality import estimate_s, number, problems
from paceline.families.training.core.planning.metrics import DERIVED
from paceline.families.training.core.planning.parameters import ALIKE_RANKS, ONE_PART
from paceline.families.training.core.planning.promises import Training
from paceline.families.training.ops.expert_inference.metrics import METRICS
from paceline.families.training.ops.expert_inference.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    own: list[str] = []
    affinity = params["affinity"]
    assert isinstance(affinity, int | float)
    if affinity > 1:
        own.append(f"affinity is a probability, at most 1, and not {affinity}")
    if number(params, "batch") < number(params, "ranks"):
        own.append(
            f"{params['batch']} sequences are too few for {number_of(number(params, 'ranks'), 'rank')}"
        )
    return problems(params, whole_batch=True, own=own)


OPERATION = Operation(
    name="expert_inference",
    summary="Ranks hold different experts of every layer, and a trained model writes symbol by symbol.",
    interface="api.expert.decoder:ExpertDecoder",
    place=4,
    parameters=PARAMETERS,
    metrics=METRICS,
    properties=Training,
    check=check,
    estimate_s=estimate_s,
    derived=DERIVED,
    fixed={**ONE_PART, **ALIKE_RANKS},
)
