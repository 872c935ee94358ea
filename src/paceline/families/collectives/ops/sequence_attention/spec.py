"""Softmax attention over a split sequence: what makes a point legal; free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.base.families.family import Params
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.metrics import CALL, EXPOSED_S
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.promises import Exactness
from paceline.families.collectives.core.planning.sizes import number
from paceline.families.collectives.ops.sequence_attention.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    whole = number(params, "heads") % number(params, "kv_heads") == 0
    own = [] if whole else [f"heads {params['heads']} is not a multiple of kv_heads {params['kv_heads']}"]
    return problems(params, own=own)


OPERATION = CollectiveOperation(
    name="sequence_attention",
    summary="Softmax attention over a sequence that is split between ranks.",
    place=10,
    parameters=PARAMETERS,
    arguments=(
        given("q_TGD", "tokens", "heads", "head_dim"),
        given("k_THD", "tokens", "kv_heads", "head_dim"),
        given("v_THD", "tokens", "kv_heads", "head_dim"),
        filled("out_TGD", "tokens", "heads", "head_dim"),
        filled("lse_TG", "tokens", "heads"),
    ),
    metrics=(*CALL, EXPOSED_S),
    properties=Exactness,
    check=check,
    estimate_s=estimate_s,
    computes=True,
)
