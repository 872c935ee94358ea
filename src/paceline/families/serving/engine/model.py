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
_attention = torch.nn.functional.scaled_dot_product_attention


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
    context: int
    """Tokens of the request up to the last of these."""
    blocks_C: Tensor
    """Its blocks, as far as they hold these tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a step computes, flattened; requests with one token come first."""

    tokens_N: Tensor
    positions_N: Tensor
    slots_N: Tensor
    """Where keys and values go."""
    chunks: Sequence[Chunk]
    blocks_DC: Tensor
    """Blocks of the requests with one token, filled up with block 0."""
    lengths_D: Tensor
    """Their tokens."""
    last_rows: Tensor
    """Rows whose next token is wanted."""
    block_size: int


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
        self.dtype = dtype = DTYPES[shape.dtype]
        self.weights = {n: w.to(self.device, dtype) for n, w in draw_weights(shape).items()}
        for layer in range(shape.layers):
            parts = [self.weights.pop(f"{layer}.{name}") for name in ("q", "k", "v")]
            self.weights[f"{layer}.qkv"] = torch.cat(parts)
            self.weights[f"{layer}.gate_up"] = torch.cat(
                [self.weights.pop(f"{layer}.gate"), self.weights.pop(f"{layer}.up")]
            )
        room = (shape.layers, num_slots, 2, shape.kv_heads, shape.head_dim)
        self._cache = torch.zeros(room, dtype=dtype, device=self.device)
        """Keys and values of a token lie beside each other, and so are written and read at once."""
        rates = ROTARY_BASE ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
        angles = torch.arange(shape.max_context, dtype=torch.float64)[:, None] * rates
        self._cos = angles.cos().to(self.device, dtype)
        self._sin = angles.sin().to(self.device, dtype)

    def turns(self, positions_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of positions, for ``rotated``."""
        return self._cos[positions_N, None], self._sin[positions_N, None]

    @torch.inference_mode()
    def next_tokens(self, batch: Batch) -> Tensor:
        """Compute a step and return the likeliest next token of each row in ``last_rows``; of equals the lowest."""
        shape = self.shape
        x = self.weights["embedding"][batch.tokens_N]
        cos, sin = self.turns(batch.positions_N)
        hidden_D11L = _hidden(batch, self.dtype)
        kv = shape.kv_heads * shape.head_dim
        for layer in range(shape.layers):
            qkv = rms_norm(x, self.weights[f"{layer}.norm"]) @ self.weights[f"{layer}.qkv"].T
            turned = rotated(qkv[:, :-kv].reshape(len(x), -1, shape.head_dim), cos, sin)
            v = qkv[:, -kv:].reshape(len(x), -1, shape.head_dim)
            self._cache[layer].index_copy_(0, batch.slots_N, torch.stack((turned[:, shape.heads :], v), 1))
            mixed = self._attend(layer, turned[:, : shape.heads], batch, hidden_D11L)
            x = x + mixed @ self.weights[f"{layer}.o"].T
            inner = rms_norm(x, self.weights[f"{layer}.ffn_norm"]) @ self.weights[f"{layer}.gate_up"].T
            gate, up = inner.chunk(2, -1)
            x = x + (torch.nn.functional.silu(gate) * up) @ self.weights[f"{layer}.down"].T
        logits = rms_norm(x[batch.last_rows], self.weights["norm"]) @ self.weights["head"].T
        return logits.argmax(-1)

    def _attend(self, layer: int, q_NHd: Tensor, batch: Batch, hidden_D11L: Tensor) -> Tensor:
        """Return attention over the cache, [N, h]."""
        shape = self.shape
        rows = len(hidden_D11L)
        parts: list[Tensor] = []
        if rows:
            k_DGLd, v_DGLd = self._cached(layer, batch.blocks_DC, batch.block_size)
            # Heads of queries that share a head of keys are rows of it: keys and values are read once for all of them.
            q_DGgd = q_NHd[:rows].reshape(rows, shape.kv_heads, -1, shape.head_dim)
            parts.append(_attention(q_DGgd, k_DGLd, v_DGLd, attn_mask=hidden_D11L).reshape(rows, -1))
        for chunk in batch.chunks:
            k_1GLd, v_1GLd = self._cached(layer, chunk.blocks_C[None], batch.block_size)
            q_1HTd = q_NHd[None, chunk.first : chunk.first + chunk.rows].transpose(1, 2)
            k_1GLd, v_1GLd = k_1GLd[:, :, : chunk.context], v_1GLd[:, :, : chunk.context]
            grouped, fresh = shape.heads != shape.kv_heads, chunk.rows == chunk.context
            mask = None if fresh else _earlier(chunk, self.device)
            mixed_1HTd = _attention(
                q_1HTd, k_1GLd, v_1GLd, attn_mask=mask, is_causal=fresh, enable_gqa=grouped
            )
            parts.append(mixed_1HTd[0].transpose(0, 1).reshape(chunk.rows, -1))
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _cached(self, layer: int, blocks_BC: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of some blocks for each of several requests, [B, G, L, d]."""
        shape, (requests, columns) = self.shape, blocks_BC.shape
        blocks = self._cache[layer].view(-1, block_size * 2 * shape.kv_heads * shape.head_dim)
        found = blocks.index_select(0, blocks_BC.flatten()).view(
            requests, columns * block_size, 2, shape.kv_heads, shape.head_dim
        )
        return found[:, :, 0].transpose(1, 2), found[:, :, 1].transpose(1, 2)


def _hidden(batch: Batch, dtype: torch.dtype) -> Tensor:
    """Return what to add to the scores of requests with one token, [D, 1, 1, L]: −∞ at places without a token."""
    places = torch.arange(batch.blocks_DC.shape[1] * batch.block_size, device=batch.lengths_D.device)
    beyond = places >= batch.lengths_D[:, None]
    hidden: Tensor = torch.zeros(beyond.shape, dtype=dtype, device=beyond.device).masked_fill_(
        beyond, -math.inf
    )
    return hidden[:, None, None]


def _earlier(chunk: Chunk, device: torch.device) -> Tensor:
    """Return which tokens of its request each row of a chunk sees, [T, L]."""
    place = torch.arange(chunk.context - chunk.rows, chunk.context, device=device)
    return torch.arange(chunk.context, device=device) <= place[:, None]


def rotated(x_NHd: Tensor, cos_N1: Tensor, sin_N1: Tensor) -> Tensor:
    """Turn pairs (i, i + d/2) by their positions' angles (Su et al., RoFormer, equation 34, halves as pairs)."""
    first, second = x_NHd.chunk(2, -1)
    return torch.cat([first * cos_N1 - second * sin_N1, second * cos_N1 + first * sin_N1], -1)
