"""A Llama-like decoder over a paged cache: RMSNorm, rotary positions, grouped heads, SwiGLU; seeded random weights.

Shapes: N tokens of a step, D of them decoding, h hidden, H heads of queries, G heads of keys, d = h / H, L context.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

EPSILON = 1e-5
ROTARY_BASE = 10000.0
EXPANSION = 8 / 3
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}

Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    vocab: int
    max_context: int
    seed: int
    dtype: str = "float32"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Shape:
        """Read sizes, refusing those that do not divide.

        Raises:
            ValueError: Heads do not divide.
        """
        shape = cls(**given)
        if shape.hidden % shape.heads or shape.heads % shape.kv_heads or (shape.hidden // shape.heads) % 2:
            raise ValueError(f"{shape.heads} and {shape.kv_heads} heads do not divide {shape.hidden}")
        return shape

    @property
    def head_dim(self) -> int:
        """Return the width of a head."""
        return self.hidden // self.heads

    @property
    def inner(self) -> int:
        """Return the width between the feed-forward layer's matrices."""
        return -(-round(EXPANSION * self.hidden) // 16) * 16


def draw_weights(shape: Shape) -> Weights:
    """Draw all weights in float32: normal with a standard deviation of 1/√(inputs), norms of ones."""
    generator = torch.Generator().manual_seed(shape.seed)

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator) / math.sqrt(columns)

    kv = shape.kv_heads * shape.head_dim
    weights: Weights = {"embedding": torch.randn(shape.vocab, shape.hidden, generator=generator)}
    for layer in range(shape.layers):
        weights |= {
            f"{layer}.norm": torch.ones(shape.hidden),
            f"{layer}.q": matrix(shape.hidden, shape.hidden),
            f"{layer}.k": matrix(kv, shape.hidden),
            f"{layer}.v": matrix(kv, shape.hidden),
            f"{layer}.o": matrix(shape.hidden, shape.hidden),
            f"{layer}.ffn_norm": torch.ones(shape.hidden),
            f"{layer}.gate": matrix(shape.inner, shape.hidden),
            f"{layer}.up": matrix(shape.inner, shape.hidden),
            f"{layer}.down": matrix(shape.hidden, shape.inner),
        }
    weights["norm"] = torch.ones(shape.hidden)
    weights["head"] = matrix(shape.vocab, shape.hidden)
    return weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Tokens of one request in a step, more than one: part of a prompt."""

    first: int
    """Row of the first."""
    rows: int
    slots_L: Tensor
    """Places in the cache of all its tokens up to the last of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a step computes, flattened."""

    tokens_N: Tensor
    positions_N: Tensor
    slots_N: Tensor
    """Where keys and values go."""
    chunks: Sequence[Chunk]
    decoding_D: Tensor
    """Rows of requests with one token."""
    contexts_DL: Tensor
    """Places in the cache of their tokens, filled up with place 0."""
    lengths_D: Tensor
    last_rows: Tensor
    """Rows whose next token is wanted."""


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Return x over its root mean square, in float32 at least (Zhang and Sennrich, 2019, equation 4)."""
    wide = x.float() if x.dtype == torch.bfloat16 else x
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype) * weight


class Model:
    """Weights, a paged cache, and one forward pass over a step's tokens.

    Args:
        shape: Sizes.
        num_slots: Tokens that the cache holds.
        device: Where it computes.
    """

    def __init__(self, shape: Shape, num_slots: int, device: str = "cpu") -> None:
        self.shape, self.device = shape, torch.device(device)
        dtype = DTYPES[shape.dtype]
        self._w = {n: w.to(self.device, dtype) for n, w in draw_weights(shape).items()}
        for layer in range(shape.layers):
            parts = [self._w.pop(f"{layer}.{name}") for name in ("q", "k", "v")]
            self._w[f"{layer}.qkv"] = torch.cat(parts)
            self._w[f"{layer}.gate_up"] = torch.cat(
                [self._w.pop(f"{layer}.gate"), self._w.pop(f"{layer}.up")]
            )
        room = (shape.layers, num_slots, shape.kv_heads, shape.head_dim)
        self._keys = torch.zeros(room, dtype=dtype, device=self.device)
        self._values = torch.zeros(room, dtype=dtype, device=self.device)
        rates = ROTARY_BASE ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
        angles = torch.arange(shape.max_context, dtype=torch.float64)[:, None] * rates
        self._cos = angles.cos().to(self.device, dtype)
        self._sin = angles.sin().to(self.device, dtype)

    @torch.inference_mode()
    def next_tokens(self, batch: Batch) -> Tensor:
        """Compute a step and return the likeliest next token of each row in ``last_rows``; of equals the lowest."""
        shape = self.shape
        x = self._w["embedding"][batch.tokens_N]
        cos, sin = self._cos[batch.positions_N, None], self._sin[batch.positions_N, None]
        for layer in range(shape.layers):
            qkv = rms_norm(x, self._w[f"{layer}.norm"]) @ self._w[f"{layer}.qkv"].T
            kv = shape.kv_heads * shape.head_dim
            heads = (len(x), -1, shape.head_dim)
            q, k, v = qkv[:, : shape.hidden], qkv[:, shape.hidden : -kv], qkv[:, -kv:]
            q, k, v = q.reshape(heads), k.reshape(heads), v.reshape(heads)
            self._keys[layer].index_copy_(0, batch.slots_N, _rotated(k, cos, sin))
            self._values[layer].index_copy_(0, batch.slots_N, v)
            x = x + self._attend(layer, _rotated(q, cos, sin), batch) @ self._w[f"{layer}.o"].T
            inner = rms_norm(x, self._w[f"{layer}.ffn_norm"]) @ self._w[f"{layer}.gate_up"].T
            gate, up = inner.chunk(2, -1)
            x = x + (torch.nn.functional.silu(gate) * up) @ self._w[f"{layer}.down"].T
        logits = rms_norm(x[batch.last_rows], self._w["norm"]) @ self._w["head"].T
        return logits.argmax(-1)

    def _attend(self, layer: int, q_NHd: Tensor, batch: Batch) -> Tensor:
        """Return attention over the cache, [N, h]."""
        keys, values = self._keys[layer], self._values[layer]
        out = torch.empty_like(q_NHd)
        if len(batch.decoding_D):
            k_DLGd, v_DLGd = keys[batch.contexts_DL], values[batch.contexts_DL]
            beyond = torch.arange(k_DLGd.shape[1], device=self.device) >= batch.lengths_D[:, None]
            out[batch.decoding_D] = self._grouped(
                q_NHd[batch.decoding_D][:, None], k_DLGd, v_DLGd, beyond[:, None, None, None]
            )[:, 0]
        for chunk in batch.chunks:
            rows = slice(chunk.first, chunk.first + chunk.rows)
            context = len(chunk.slots_L)
            place = torch.arange(context - chunk.rows, context, device=self.device)
            later = torch.arange(context, device=self.device) > place[:, None]
            out[rows] = self._grouped(
                q_NHd[rows][None], keys[chunk.slots_L][None], values[chunk.slots_L][None], later
            )[0]
        return out.reshape(len(q_NHd), self.shape.hidden)

    def _grouped(self, q_BTHd: Tensor, k_BLGd: Tensor, v_BLGd: Tensor, hidden: Tensor) -> Tensor:
        """Return softmax(q kᵀ / √d) v where each head of keys serves several of queries, [B, T, H, d]."""
        shape = self.shape
        batch, rows = q_BTHd.shape[:2]
        groups = shape.heads // shape.kv_heads
        q_BGgTd = q_BTHd.view(batch, rows, shape.kv_heads, groups, shape.head_dim).permute(0, 2, 3, 1, 4)
        scores = q_BGgTd @ k_BLGd.permute(0, 2, 3, 1)[:, :, None]
        scores = (scores / math.sqrt(shape.head_dim)).masked_fill_(hidden, float("-inf"))
        mixed_BGgTd = scores.softmax(-1) @ v_BLGd.permute(0, 2, 1, 3)[:, :, None]
        return mixed_BGgTd.permute(0, 3, 1, 2, 4).reshape(batch, rows, shape.heads, shape.head_dim)


def _rotated(x_NHd: Tensor, cos_N1: Tensor, sin_N1: Tensor) -> Tensor:
    """Turn pairs (i, i + d/2) by their positions' angles (Su et al., RoFormer, equation 34, halves as pairs)."""
    first, second = x_NHd.chunk(2, -1)
    return torch.cat([first * cos_N1 - second * sin_N1, second * cos_N1 + first * sin_N1], -1)
