"""Operators of a Llama-like layer on one of several devices, by their shapes. Free of torch.

Counts are those of dense algebra: a product of (n, k) with (k, m) takes 2·n·k·m operations and reads its weights once
for every nano-batch; decoding reads the keys and values of the whole context; an all-reduce of n bytes sends
2·(p - 1)/p·n bytes from each of p devices (a ring).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.families.serving.api.overlapping import COMPUTE, MEMORY, NETWORK, Given, Operator

NUMBER_BYTES = 2
"""Weights, activations and cache in bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Sizes of a model that is served."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one device does at best: dense bfloat16, its memory, and its links one way."""

    flops_per_s: float
    bytes_per_s: float
    wire_bytes_per_s: float


SERVED: Mapping[str, Served] = {
    "llama-2-70b": Served(layers=80, hidden=8192, heads=64, kv_heads=8, inner=28672),
    "llama-3-8b": Served(layers=32, hidden=4096, heads=32, kv_heads=8, inner=14336),
}
"""By name, from the models' published configurations."""
RATES: Mapping[str, Rates] = {
    "a100-80gb-sxm": Rates(flops_per_s=312e12, bytes_per_s=2.039e12, wire_bytes_per_s=300e9),
    "h100-sxm": Rates(flops_per_s=989e12, bytes_per_s=3.35e12, wire_bytes_per_s=450e9),
}
"""By name, from NVIDIA's datasheets; links are half of what is published for both ways."""


def given_of(params: Mapping[str, Any]) -> Given:
    """Return the batch of a point.

    Requests are in every state of their answer alike: of the batch's rows, output/(prompt + output) decode, behind a
    context of the prompt and half an answer; the others are rows of prompts, behind half a prompt.
    """
    served, rates = SERVED[str(params["served"])], RATES[str(params["device"])]
    prompt, answer = int(params["prompt_tokens"]), int(params["output_tokens"])
    rows, ranks = int(params["batch_rows"]), int(params["tp_size"])
    decoding = max(1, min(rows - 1, round(rows * answer / (prompt + answer))))
    return Given(
        operators=_operators(served, rows, decoding, ranks, prompt + answer / 2, prompt / 2),
        layers=served.layers,
        flops_per_s=rates.flops_per_s,
        bytes_per_s=rates.bytes_per_s,
        wire_bytes_per_s=rates.wire_bytes_per_s,
        start_s=float(params["start_latency"]),
        exchange=float(params["exchange"]),
    )


def _operators(
    served: Served, rows: int, decoding: int, ranks: int, context: float, past: float
) -> tuple[Operator, ...]:
    head = served.hidden // served.heads
    kv = served.kv_heads * head
    reduced = 2 * (ranks - 1) / ranks * served.hidden * NUMBER_BYTES
    found = [
        _product("kqv", rows, (), served.hidden * (served.hidden + 2 * kv) / ranks),
        Operator(
            name="decode-attention",
            kind=MEMORY,
            first=0,
            last=decoding,
            after=("kqv",),
            row_flops=4 * context * served.hidden / ranks,
            row_bytes=2 * context * kv * NUMBER_BYTES / ranks,
        ),
        Operator(
            name="prefill-attention",
            kind=COMPUTE,
            first=decoding,
            last=rows,
            after=("kqv",),
            whole_past=True,
            row_flops=4 * past * served.hidden / ranks,
        ),
        _product("o", rows, ("decode-attention", "prefill-attention"), served.hidden**2 / ranks),
        _reduction("reduce-o", rows, "o", reduced),
        _product("gate-up", rows, ("reduce-o",), 2 * served.hidden * served.inner / ranks),
        _product("down", rows, ("gate-up",), served.hidden * served.inner / ranks),
        _reduction("reduce-down", rows, "down", reduced),
    ]
    return tuple(found)


def _product(name: str, rows: int, after: tuple[str, ...], weights: float) -> Operator:
    return Operator(
        name=name,
        kind=COMPUTE,
        first=0,
        last=rows,
        after=after,
        row_flops=2 * weights,
        fixed_bytes=weights * NUMBER_BYTES,
    )


def _reduction(name: str, rows: int, after: str, row_wire_bytes: float) -> Operator:
    return Operator(
        name=name, kind=NETWORK, first=0, last=rows, after=(after,), row_wire_bytes=row_wire_bytes
    )


def least_s(given: Given) -> float:
    """Return the time that the products of weights alone take at the device's rate: no order is faster.

    NanoFlow's optimal throughput (equation 5) is the batch over this: operations a second over two for each weight.
    """
    products = [o for o in given.operators if o.fixed_bytes]
    return given.layers * sum(o.rows * o.row_flops for o in products) / given.flops_per_s
