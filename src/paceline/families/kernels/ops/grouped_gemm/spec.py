"""What the control plane knows about ``grouped_gemm``, free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.base.families.family import Parameter, Params
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer, item_bytes, product
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import TOKENS, K, N, number
from paceline.families.kernels.ops.grouped_gemm.routing import SKEWS, expert_tokens

PARAMETERS = (
    number("experts", "Number of experts.", 8),
    Parameter(
        name="skew",
        kind="choice",
        doc="How tokens are spread over experts: even, or falling as 1/rank.",
        default="skewed",
        choices=SKEWS,
    ),
)


def _traffic(p: Params) -> float:
    tokens, n, k = (integer(p, name) for name in ("tokens", "n", "k"))
    used = sum(1 for count in expert_tokens(p) if count)
    return (tokens * (k + n) + used * n * k) * item_bytes(p)


OPERATION = timed(
    name="grouped_gemm",
    place=2,
    summary="Mixture of experts: rows of X (tokens, k), sorted by expert, times their expert's W (experts, k, n).",
    parameters=(N, K, TOKENS, *PARAMETERS),
    arguments=(
        given("x", "tokens", "k", doc="sorted by expert"),
        given("offsets", "experts + 1", dtype="int64", doc="expert e has rows offsets[e] to offsets[e + 1]"),
        given("w", "experts", "k", "n"),
        filled("y", "tokens", "n"),
    ),
    arithmetic=Arithmetic(flops=lambda p: 2.0 * product(p, "tokens", "n", "k"), traffic=_traffic),
)
