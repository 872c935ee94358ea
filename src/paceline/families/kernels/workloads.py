"""The operations of the family as the control plane knows them: parameters, arithmetic and compulsory traffic.

Formulas count what the result needs, not what an implementation spends: a multiply-add is two operations, every input
is read once and every output written once. A technique that recomputes or spills gains nothing in TFLOP/s or GB/s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.base.family import Params

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
SPREADS = ("uniform", "linear", "one-long")
EXPERT_SKEWS = ("even", "skewed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the control plane knows about an operation."""

    name: str
    doc: str
    parameters: tuple[str, ...]
    """Parameters beside dtype and threads."""
    flops: Callable[[Params], float]
    """Floating-point operations of one call."""
    traffic: Callable[[Params], float]
    """Compulsory bytes of one call."""
    operands: str | None = None
    """Element type of the factors where it is not the case's dtype, which then is the result's."""
    scenario: bool = False
    """True when it is no timed kernel but a question asked of many."""
    bound: str = "memory"
    """What limits it on common devices: ``compute`` or ``memory`` (for the plan's estimate)."""


def integer(params: Params, name: str) -> int:
    """Return an integer parameter."""
    value = params[name]
    assert isinstance(value, int)
    return value


def item_bytes(params: Params) -> int:
    """Return the bytes of one element."""
    return ITEM_BYTES[str(params["dtype"])]


def _product(params: Params, *names: str) -> int:
    product = 1
    for name in names:
        product *= integer(params, name)
    return product


def context_lengths(params: Params) -> list[int]:
    """Return the number of cached tokens of each sequence of a decode batch.

    ``uniform``: all have ``context``; ``linear``: from context/batch up to ``context``; ``one-long``: one has
    ``context``, the others a sixteenth of it. Lengths are odd where they are not ``context``, as real ones are.
    """
    batch, longest = integer(params, "batch"), integer(params, "context")
    spread = str(params["spread"])
    if spread == "uniform":
        return [longest] * batch
    if spread == "linear":
        return [max(longest * (i + 1) // batch | 1, 1) for i in range(batch - 1)] + [longest]
    return [longest] + [max(longest // 16 | 1, 1)] * (batch - 1)


def expert_tokens(params: Params) -> list[int]:
    """Return the number of tokens routed to each expert: even, or falling as 1/rank (a Zipf law), some experts idle."""
    tokens, experts = integer(params, "tokens"), integer(params, "experts")
    if str(params["skew"]) == "even":
        base, extra = divmod(tokens, experts)
        return [base + (1 if e < extra else 0) for e in range(experts)]
    weights = [1.0 / (e + 1) for e in range(experts)]
    shares = [int(tokens * w / sum(weights)) for w in weights]
    shares[0] += tokens - sum(shares)
    return shares


def code_bytes(params: Params) -> int:
    """Return the bytes of all weights of a dequantising GEMM, packed at their bit width."""
    return -(-_product(params, "n", "k", "bits") // 8)


def _gemm_traffic(p: Params) -> float:
    m, n, k = (integer(p, name) for name in "mnk")
    return (m * k + k * n + m * n) * item_bytes(p)


def _grouped_traffic(p: Params) -> float:
    tokens, n, k = (integer(p, name) for name in ("tokens", "n", "k"))
    used = sum(1 for count in expert_tokens(p) if count)
    return (tokens * (k + n) + used * n * k) * item_bytes(p)


def _scaled_traffic(p: Params) -> float:
    m, n, k = (integer(p, name) for name in "mnk")
    return float((m + n) * k + m * n * item_bytes(p) + 2 * 4)


def _attention_traffic(p: Params) -> float:
    per_token = 2 * (integer(p, "heads") + integer(p, "kv_heads")) * integer(p, "head_dim")
    return _product(p, "batch", "tokens") * per_token * item_bytes(p)


def _decode_traffic(p: Params) -> float:
    cached = 2 * sum(context_lengths(p)) * _product(p, "kv_heads", "head_dim")
    return (cached + 2 * _product(p, "batch", "heads", "head_dim")) * item_bytes(p)


def _dequant_traffic(p: Params) -> float:
    m, n, k = (integer(p, name) for name in "mnk")
    scales = n * (k // integer(p, "group"))
    return code_bytes(p) + (scales + m * k + m * n) * item_bytes(p)


WORKLOADS: dict[str, Workload] = {
    w.name: w
    for w in (
        Workload(
            name="gemm",
            doc="C = A·B with A (m, k), B (k, n).",
            parameters=("m", "n", "k"),
            flops=lambda p: 2.0 * _product(p, "m", "n", "k"),
            traffic=_gemm_traffic,
            bound="compute",
        ),
        Workload(
            name="scaled_gemm",
            doc="C = scale_a · scale_b · A·Bᵀ with A (m, k) and B (n, k) in float8_e4m3fn; dtype is that of C.",
            parameters=("m", "n", "k"),
            flops=lambda p: 2.0 * _product(p, "m", "n", "k"),
            traffic=_scaled_traffic,
            operands="float8_e4m3fn",
            bound="compute",
        ),
        Workload(
            name="grouped_gemm",
            doc="Mixture of experts: rows of X (tokens, k), sorted by expert, times their expert's W (experts, k, n).",
            parameters=("tokens", "experts", "skew", "n", "k"),
            flops=lambda p: 2.0 * _product(p, "tokens", "n", "k"),
            traffic=_grouped_traffic,
            bound="compute",
        ),
        Workload(
            name="add_rmsnorm",
            doc="s = x + residual; y = s / rms(s) · weight; both are written.",
            parameters=("tokens", "hidden"),
            flops=lambda p: 5.0 * _product(p, "tokens", "hidden"),
            traffic=lambda p: (4.0 * _product(p, "tokens", "hidden") + integer(p, "hidden")) * item_bytes(p),
        ),
        Workload(
            name="cross_entropy",
            doc="Loss of every token: logsumexp of its logits minus the target's logit, in float32.",
            parameters=("tokens", "vocab"),
            flops=lambda p: 4.0 * _product(p, "tokens", "vocab"),
            traffic=lambda p: _product(p, "tokens", "vocab") * item_bytes(p) + 12.0 * integer(p, "tokens"),
        ),
        Workload(
            name="lm_head_loss",
            doc="Mean cross-entropy of hidden·Wᵀ and its gradients with respect to hidden and W.",
            parameters=("tokens", "hidden", "vocab"),
            flops=lambda p: 6.0 * _product(p, "tokens", "hidden", "vocab"),
            traffic=lambda p: (
                2.0 * integer(p, "hidden") * (integer(p, "tokens") + integer(p, "vocab")) * item_bytes(p)
            ),
            bound="compute",
        ),
        Workload(
            name="attention_prefill",
            doc="Causal self-attention of a whole prompt; fewer key heads than heads is grouped-query attention.",
            parameters=("batch", "tokens", "heads", "kv_heads", "head_dim"),
            flops=lambda p: (
                2.0 * _product(p, "batch", "heads", "head_dim", "tokens") * (integer(p, "tokens") + 1)
            ),
            traffic=_attention_traffic,
            bound="compute",
        ),
        Workload(
            name="attention_decode",
            doc="One new token of every sequence attends to that sequence's cache; caches lie one after another.",
            parameters=("batch", "context", "spread", "heads", "kv_heads", "head_dim"),
            flops=lambda p: 4.0 * _product(p, "heads", "head_dim") * sum(context_lengths(p)),
            traffic=_decode_traffic,
        ),
        Workload(
            name="dequant_gemm",
            doc="C = X·(codes · scale)ᵀ with weights of 1 to 8 bits and one scale for each group of k.",
            parameters=("m", "n", "k", "bits", "group"),
            flops=lambda p: 2.0 * _product(p, "m", "n", "k"),
            traffic=_dequant_traffic,
        ),
        Workload(
            name="copy",
            doc="STREAM copy: c = a.",
            parameters=("size_bytes",),
            flops=lambda p: 0.0,
            traffic=lambda p: 2.0 * integer(p, "size_bytes"),
        ),
        Workload(
            name="triad",
            doc="STREAM triad: c = a + 3·b.",
            parameters=("size_bytes",),
            flops=lambda p: 2.0 * integer(p, "size_bytes") / item_bytes(p),
            traffic=lambda p: 3.0 * integer(p, "size_bytes"),
        ),
        Workload(
            name="strided_copy",
            doc="Blocks of columns of a matrix are gathered into a contiguous one.",
            parameters=("rows", "columns", "row_stride"),
            flops=lambda p: 0.0,
            traffic=lambda p: 2.0 * _product(p, "rows", "columns") * item_bytes(p),
        ),
        Workload(
            name="tile_choice",
            doc="Times of a tiled matrix product at held-out shapes are predicted, and the tile chosen by them.",
            parameters=("largest", "num_shapes"),
            flops=lambda p: 0.0,
            traffic=lambda p: 0.0,
            scenario=True,
        ),
    )
}
