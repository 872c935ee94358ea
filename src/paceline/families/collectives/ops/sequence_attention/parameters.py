"""The size of attention over a split sequence, as suites name it; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.collectives.core.planning.parameters import CALL, HEAD_DIM, HEADS, TOKENS

KV_HEADS = Parameter(
    name="kv_heads",
    kind="count",
    doc="Key and value heads (fewer than heads: grouped-query attention).",
    default=4,
    minimum=1,
)

PARAMETERS: tuple[Parameter, ...] = (*CALL, TOKENS, HEADS, KV_HEADS, HEAD_DIM)
