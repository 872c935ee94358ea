"""A Llama-like decoder over a paged cache: RMSNorm, rotary positions, grouped heads, SwiGLU; seeded random weights.

Shapes: N tokens of a step, h hidden, H heads of queries, G heads of keys, d = h / H.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paceline.families.serving.api.layers import DTYPES, Shape, Turns, Weights, rms_norm, rotated
from paceline.families.serving.api.paged import Batch, Paged, hidden_places


def draw_weights(shape: Shape) -> Weights:
    """Draw all weights in float32: normal with a standard deviation of 1/√(inputs), norms of ones."""
    # On the CPU and in float32 whatever computes later: the reference draws the very same weights.
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
            # One larger product for three matrices of the same input; gate and up likewise.
            self.weights[f"{layer}.qkv"] = torch.cat(parts)
            self.weights[f"{layer}.gate_up"] = torch.cat(
                [self.weights.pop(f"{layer}.gate"), self.weights.pop(f"{layer}.up")]
            )
        self._cache = Paged(shape.layers, num_slots, shape.kv_heads, shape.head_dim, dtype, self.device)
        self.turns = Turns(shape, self.device)

    @torch.inference_mode()
    def next_tokens(self, batch: Batch) -> Tensor:
        """Compute a step and return the likeliest next token of each row in ``last_rows``; of equals the lowest."""
        shape = self.shape
        x = self.weights["embedding"][batch.tokens_N]
        cos, sin = self.turns(batch.positions_N)
        hidden_D11L = hidden_places(batch, self.dtype)
        kv = shape.kv_heads * shape.head_dim
        for layer in range(shape.layers):
            qkv = rms_norm(x, self.weights[f"{layer}.norm"]) @ self.weights[f"{layer}.qkv"].T
            # Queries and keys in one turn; values, the last kv columns, carry no position.
            turned = rotated(qkv[:, :-kv].reshape(len(x), -1, shape.head_dim), cos, sin)
            v = qkv[:, -kv:].reshape(len(x), -1, shape.head_dim)
            # Before attention, which reads this step's own keys from the cache like all others.
            self._cache.write(layer, batch.slots_N, turned[:, shape.heads :], v)
            mixed = self._cache.attend(layer, turned[:, : shape.heads], batch, hidden_D11L)
            x = x + mixed @ self.weights[f"{layer}.o"].T
            inner = rms_norm(x, self.weights[f"{layer}.ffn_norm"]) @ self.weights[f"{layer}.gate_up"].T
            gate, up = inner.chunk(2, -1)
            x = x + (torch.nn.functional.silu(gate) * up) @ self.weights[f"{layer}.down"].T
        # Only rows whose token is wanted: with a large vocabulary the head is the largest matrix, and a prompt has one
        # such row.
        logits = rms_norm(x[batch.last_rows], self.weights["norm"]) @ self.weights["head"].T
        return logits.argmax(-1)
