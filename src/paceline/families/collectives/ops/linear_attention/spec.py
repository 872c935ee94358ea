"""Gated linear attention: its parameters and metrics; free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.families.collectives.core.planning import metrics
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.parameters import CALL, HEAD_DIM, HEADS, TOKENS
from paceline.families.collectives.core.planning.promises import Exactness

OPERATION = CollectiveOperation(
    name="linear_attention",
    summary="Gated linear attention over a sequence that is split between ranks.",
    place=9,
    parameters=(*CALL, TOKENS, HEADS, HEAD_DIM),
    arguments=(
        given("q_THD", "tokens", "heads", "head_dim"),
        given("k_THD", "tokens", "heads", "head_dim"),
        given("v_THD", "tokens", "heads", "head_dim"),
        given("log_decay_THD", "tokens", "heads", "head_dim"),
        filled("out_THD", "tokens", "heads", "head_dim"),
    ),
    metrics=(*metrics.CALL, metrics.EXPOSED_S),
    properties=Exactness,
    check=problems,
    estimate_s=estimate_s,
    computes=True,
)
