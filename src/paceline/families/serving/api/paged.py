"""A paged cache of keys and values, and attention over it for the flattened tokens of a step.

Shapes: N tokens of a step, D of them decoding, G heads of keys, H heads of queries (a multiple of G), d width of a
head, B requests, C blocks of a request, L places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_attention = torch.nn.functional.scaled_dot_product_attention


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


class Paged:
    """Keys and values of some heads, in slots.

    Args:
        layers: How many.
        num_slots: Tokens that fit.
        kv_heads: Heads of keys, G.
        head_dim: Their width, d.
        dtype: Of all numbers.
        device: Where they are.
    """

    def __init__(
        self,
        layers: int,
        num_slots: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._heads, self._width, self._device = kv_heads, head_dim, device
        self.numbers = torch.zeros((layers, num_slots, 2, kv_heads, head_dim), dtype=dtype, device=device)
        """Keys and values of a token lie beside each other, and so are written and read at once."""

    def write(self, layer: int, slots_N: Tensor, k_NGd: Tensor, v_NGd: Tensor) -> None:
        """Keep keys and values of some tokens.

        Args:
            layer: Of which.
            slots_N: Where, int64; each once.
            k_NGd: Turned keys, (N, G, d), of the cache's dtype.
            v_NGd: Values likewise.
        """
        self.numbers[layer].index_copy_(0, slots_N, torch.stack((k_NGd, v_NGd), 1))

    def attend(self, layer: int, q_NHd: Tensor, batch: Batch, hidden_D11L: Tensor) -> Tensor:
        """Return attention of each token over its request so far, [N, H·d].

        Args:
            layer: Of which.
            q_NHd: Turned queries, (N, H, d).
            batch: The step.
            hidden_D11L: Its ``hidden_places``.
        """
        rows = len(hidden_D11L)
        parts: list[Tensor] = []
        if rows:
            k_DGLd, v_DGLd = self._cached(layer, batch.blocks_DC, batch.block_size)
            # Heads of queries that share a head of keys are rows of it: keys and values are read once for all of them.
            q_DGgd = q_NHd[:rows].reshape(rows, self._heads, -1, self._width)
            parts.append(_attention(q_DGgd, k_DGLd, v_DGLd, attn_mask=hidden_D11L).reshape(rows, -1))
        for chunk in batch.chunks:
            k_1GLd, v_1GLd = self._cached(layer, chunk.blocks_C[None], batch.block_size)
            q_1HTd = q_NHd[None, chunk.first : chunk.first + chunk.rows].transpose(1, 2)
            # The last block may be filled in part; behind its tokens lies what an earlier request has left.
            k_1GLd, v_1GLd = k_1GLd[:, :, : chunk.context], v_1GLd[:, :, : chunk.context]
            grouped, fresh = q_NHd.shape[1] != self._heads, chunk.rows == chunk.context
            # SDPA's causal mask is aligned at the top left, which is right only where nothing lies before the chunk.
            mask = None if fresh else _earlier(chunk, self._device)
            mixed_1HTd = _attention(
                q_1HTd, k_1GLd, v_1GLd, attn_mask=mask, is_causal=fresh, enable_gqa=grouped
            )
            parts.append(mixed_1HTd[0].transpose(0, 1).reshape(chunk.rows, -1))
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _cached(self, layer: int, blocks_BC: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of some blocks for each of several requests, [B, G, L, d]."""
        requests, columns = blocks_BC.shape
        # By whole blocks, which lie side by side: one copy of a block instead of one for each of its tokens.
        blocks = self.numbers[layer].view(-1, block_size * 2 * self._heads * self._width)
        found = blocks.index_select(0, blocks_BC.flatten()).view(
            requests, columns * block_size, 2, self._heads, self._width
        )
        return found[:, :, 0].transpose(1, 2), found[:, :, 1].transpose(1, 2)


def hidden_places(batch: Batch, dtype: torch.dtype) -> Tensor:
    """Return what to add to the scores of requests with one token, [D, 1, 1, L]: −∞ at places without a token."""
    places = torch.arange(batch.blocks_DC.shape[1] * batch.block_size, device=batch.lengths_D.device)
    # Rows are padded to the longest context by block 0; a request has one token at least, so no row is all −∞ and no
    # softmax NaN.
    beyond = places >= batch.lengths_D[:, None]
    hidden: Tensor = torch.zeros(beyond.shape, dtype=dtype, device=beyond.device).masked_fill_(
        beyond, -math.inf
    )
    return hidden[:, None, None]


def _earlier(chunk: Chunk, device: torch.device) -> Tensor:
    """Return which tokens of its request each row of a chunk sees, [T, L]."""
    place = torch.arange(chunk.context - chunk.rows, chunk.context, device=device)
    return torch.arange(chunk.context, device=device) <= place[:, None]
