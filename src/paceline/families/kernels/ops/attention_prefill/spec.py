"""What the control plane knows about ``attention_prefill``, free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.base.families.family import Params
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer, item_bytes, product
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import BATCH, HEADS, TOKENS, whole_groups


def _flops(p: Params) -> float:
    return 2.0 * product(p, "batch", "heads", "head_dim", "tokens") * (integer(p, "tokens") + 1)


def _traffic(p: Params) -> float:
    per_token = 2 * (integer(p, "heads") + integer(p, "kv_heads")) * integer(p, "head_dim")
    return product(p, "batch", "tokens") * per_token * item_bytes(p)


OPERATION = timed(
    name="attention_prefill",
    place=6,
    summary="Causal self-attention of a whole prompt; fewer key heads than heads is grouped-query attention.",
    parameters=(TOKENS, BATCH, *HEADS),
    arguments=(
        given("q", "batch", "heads", "tokens", "head_dim"),
        given("k", "batch", "kv_heads", "tokens", "head_dim"),
        given("v", "batch", "kv_heads", "tokens", "head_dim"),
        filled("out", "batch", "heads", "tokens", "head_dim"),
    ),
    arithmetic=Arithmetic(flops=_flops, traffic=_traffic),
    check=whole_groups,
)
