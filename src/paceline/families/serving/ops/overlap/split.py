"""An order of nano-batches, computed: each reads what those before it have written, and nothing else.

The first layers of an order run on a small model of the reference engine's kind, nano-batch by nano-batch as they
begin. Rows that nobody has written yet are not numbers, so that what begins too early shows in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from paceline.families.serving.api.layers import Shape, rms_norm, rotated
from paceline.families.serving.api.overlapping import Given, NanoBatch
from paceline.families.serving.core.engine.model import Model
from paceline.families.serving.core.model_sizes import SIZES

LAYERS = 2
CONTEXT = 12
"""Tokens behind which a request decodes, on the small model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A batch on a small model."""

    model: Model
    x_Nh: Tensor
    """What enters the first layer."""
    decoding: int
    """Rows that decode, the first ones."""
    contexts: Sequence[tuple[Tensor, Tensor]]
    """Of each layer: keys, turned, and values before the decoding rows, each [D, G, L, d]."""


def drawn(given: Given, seed: int) -> Computed:
    """Draw a model, and a batch of as many rows as the one that was ordered."""
    rows = given.operators[0].last
    decoding = next(o.last for o in given.operators if o.name == "decode-attention")
    sizes = {**SIZES["tiny"], "layers": LAYERS, "max_context": rows + CONTEXT, "seed": seed % 2**31}
    shape = Shape.of(sizes)
    generator = torch.Generator().manual_seed(seed % 2**63)
    room = (decoding, shape.kv_heads, CONTEXT, shape.head_dim)
    return Computed(
        model=Model(shape, 1),
        x_Nh=torch.randn(rows, shape.hidden, generator=generator),
        decoding=decoding,
        contexts=[
            (torch.randn(room, generator=generator), torch.randn(room, generator=generator))
            for _ in range(LAYERS)
        ],
    )


@dataclass(slots=True)
class _Layer:
    """What a layer's operators have written; rows that none has are not numbers."""

    number: int
    batch: Computed
    x: Tensor
    kept: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape, rows = self.batch.model.shape, len(self.x)
        kv = shape.kv_heads * shape.head_dim
        widths = {"q": shape.hidden, "k": kv, "v": kv, "mixed": shape.hidden, "o": shape.hidden}
        widths |= {"middle": shape.hidden, "inner": shape.inner, "down": shape.hidden, "out": shape.hidden}
        self.kept = {name: torch.full((rows, width), math.nan) for name, width in widths.items()}

    def weight(self, name: str) -> Tensor:
        return self.batch.model.weights[f"{self.number}.{name}"]

    def heads(self, name: str, begin: int, end: int) -> Tensor:
        """Return rows by head, [N, heads, d]."""
        return self.kept[name][begin:end].reshape(end - begin, -1, self.batch.model.shape.head_dim)

    def kqv(self, begin: int, end: int) -> None:
        shape, decoding = self.batch.model.shape, self.batch.decoding
        kv = shape.kv_heads * shape.head_dim
        found = rms_norm(self.x[begin:end], self.weight("norm")) @ self.weight("qkv").T
        rows = torch.arange(begin, end)
        length = self.batch.contexts[self.number][0].shape[2]
        places = torch.where(rows < decoding, length, rows - decoding)
        turned = rotated(
            found[:, :-kv].reshape(len(rows), -1, shape.head_dim), *self.batch.model.turns(places)
        )
        self.kept["q"][begin:end] = turned[:, : shape.heads].flatten(1)
        self.kept["k"][begin:end] = turned[:, shape.heads :].flatten(1)
        self.kept["v"][begin:end] = found[:, -kv:]

    def decode_attention(self, begin: int, end: int) -> None:
        keys, values = self.batch.contexts[self.number]
        k = torch.cat([keys[begin:end], self.heads("k", begin, end)[:, :, None]], 2)
        v = torch.cat([values[begin:end], self.heads("v", begin, end)[:, :, None]], 2)
        q = self.heads("q", begin, end)[:, :, None]
        mixed = scaled_dot_product_attention(q, k, v, enable_gqa=True)
        self.kept["mixed"][begin:end] = mixed.flatten(1)

    def prefill_attention(self, begin: int, end: int) -> None:
        first = self.batch.decoding
        q, k, v = (
            self.heads(name, since, end).transpose(0, 1)
            for name, since in (("q", begin), ("k", first), ("v", first))
        )
        sees = torch.arange(first, end) <= torch.arange(begin, end)[:, None]
        mixed = scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=sees, enable_gqa=True)
        self.kept["mixed"][begin:end] = mixed[0].transpose(0, 1).flatten(1)

    def o(self, begin: int, end: int) -> None:
        self.kept["o"][begin:end] = self.kept["mixed"][begin:end] @ self.weight("o").T

    def reduce_o(self, begin: int, end: int) -> None:
        self.kept["middle"][begin:end] = self.x[begin:end] + self.kept["o"][begin:end]

    def gate_up(self, begin: int, end: int) -> None:
        found = rms_norm(self.kept["middle"][begin:end], self.weight("ffn_norm")) @ self.weight("gate_up").T
        gate, up = found.chunk(2, -1)
        self.kept["inner"][begin:end] = silu(gate) * up

    def down(self, begin: int, end: int) -> None:
        self.kept["down"][begin:end] = self.kept["inner"][begin:end] @ self.weight("down").T

    def reduce_down(self, begin: int, end: int) -> None:
        self.kept["out"][begin:end] = self.kept["middle"][begin:end] + self.kept["down"][begin:end]


_OPERATORS: Mapping[str, Callable[[_Layer, int, int], None]] = {
    "kqv": _Layer.kqv,
    "decode-attention": _Layer.decode_attention,
    "prefill-attention": _Layer.prefill_attention,
    "o": _Layer.o,
    "reduce-o": _Layer.reduce_o,
    "gate-up": _Layer.gate_up,
    "down": _Layer.down,
    "reduce-down": _Layer.reduce_down,
}


@torch.inference_mode()
def computed(batches: Sequence[NanoBatch], batch: Computed) -> Tensor:
    """Return what leaves the last of the first ``LAYERS`` layers, [N, h]."""
    layers: list[_Layer] = []
    x = batch.x_Nh
    for number in range(len(batch.contexts)):
        layers.append(_Layer(number, batch, x))
        x = layers[-1].kept["out"]
    for nano in sorted((b for b in batches if b.layer < len(layers)), key=lambda b: b.begin_s):
        _OPERATORS[nano.operator](layers[nano.layer], nano.begin, nano.end)
    return x


def whole(given: Given) -> list[NanoBatch]:
    """Return the order in which every operator takes all rows at once, one after another."""
    return [
        NanoBatch(
            layer=layer,
            operator=operator.name,
            begin=operator.first,
            end=operator.last,
            share=1.0,
            begin_s=float(layer * len(given.operators) + place),
        )
        for layer in range(min(LAYERS, given.layers))
        for place, operator in enumerate(given.operators)
    ]


def deviation(batches: Sequence[NanoBatch], given: Given, seed: int) -> float:
    """Return the largest difference that cutting makes, over the largest number; infinite where rows were missing."""
    batch = drawn(given, seed)
    expected = computed(whole(given), batch)
    found = computed(batches, batch)
    if not bool(torch.isfinite(found).all()):
        return math.inf
    return float((found - expected).abs().max() / expected.abs().max())
