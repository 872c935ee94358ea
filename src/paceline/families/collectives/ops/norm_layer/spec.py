"""Row-parallel layers with RMSNorm: what makes a point legal; free of torch."""

from __future__ import annotations

from paceline.base.counting import number_of
from paceline.base.families.arguments import filled, given
from paceline.base.families.family import Params
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.promises import Exactness
from paceline.families.collectives.core.planning.sizes import number
from paceline.families.collectives.ops.norm_layer.metrics import METRICS
from paceline.families.collectives.ops.norm_layer.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    hidden, ranks = number(params, "hidden"), number(params, "ranks")
    own = [f"hidden {hidden} cannot be split between {number_of(ranks, 'rank')}"] if hidden % ranks else []
    return problems(params, own=own)


OPERATION = CollectiveOperation(
    name="norm_layer",
    summary="Row-parallel linear layers: partial product, sum over ranks, RMSNorm.",
    place=8,
    parameters=PARAMETERS,
    arguments=(
        given("x_TH", "tokens", "hidden"),
        given("weights_LKH", "layers", "hidden // ranks", "hidden"),
        given("gains_LH", "layers", "hidden"),
        filled("out_TH", "tokens", "hidden"),
    ),
    metrics=METRICS,
    properties=Exactness,
    check=check,
    estimate_s=estimate_s,
    computes=True,
)
