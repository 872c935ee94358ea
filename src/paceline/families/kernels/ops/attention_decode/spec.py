"""What the control plane knows about ``attention_decode``, free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.base.families.family import Parameter, Params
from paceline.families.kernels.api.context_lengths import SPREADS, context_lengths
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, item_bytes, product
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import BATCH, HEADS, number, whole_groups

PARAMETERS = (
    number("context", "Tokens in the longest sequence's cache.", 1024),
    Parameter(
        name="spread",
        kind="choice",
        doc="Lengths of the other sequences: uniform, linear (from context/batch up), one-long (a sixteenth).",
        default="linear",
        choices=SPREADS,
    ),
)


def _flops(p: Params) -> float:
    return 4.0 * product(p, "heads", "head_dim") * sum(context_lengths(p))


def _traffic(p: Params) -> float:
    cached = 2 * sum(context_lengths(p)) * product(p, "kv_heads", "head_dim")
    return (cached + 2 * product(p, "batch", "heads", "head_dim")) * item_bytes(p)


OPERATION = timed(
    name="attention_decode",
    place=7,
    summary="One new token of every sequence attends to that sequence's cache; caches lie one after another.",
    parameters=(BATCH, *PARAMETERS, *HEADS),
    arguments=(
        given("q", "batch", "heads", "head_dim"),
        given("k", "cached tokens", "kv_heads", "head_dim", doc="of all sequences, one after the other"),
        given("v", "cached tokens", "kv_heads", "head_dim"),
        given("offsets", "batch + 1", dtype="int64", doc="sequence i has rows offsets[i] to offsets[i + 1]"),
        filled("out", "batch", "heads", "head_dim"),
    ),
    arithmetic=Arithmetic(flops=_flops, traffic=_traffic),
    check=whole_groups,
)
