"""The workload: a decoder-only transformer with rotary positions, RMS norms and a tied head.

Shape suffixes: B sequences, T positions, D width, H heads, K width of a head, V symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from paceline.families.training.sizes import Size

ROTARY_BASE = 10_000.0
INIT_STD = 0.02

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values, (B, H, T, K), to what is seen, (B, H, T, K)."""


class RMSNorm(nn.Module):
    """Scales rows to unit root mean square, and by a learned gain."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return the normalised rows."""
        return functional.rms_norm(x_BTD, (x_BTD.shape[-1],), self.gain, 1e-6)


def causal_attention(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
    """Return attention of every position to itself and those before it, (B, H, T, K)."""
    return functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)


class Layer(nn.Module):
    """Attention and a two-layer perceptron, each normalised first and added to the stream."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.attend: Attention = causal_attention
        """What mixes positions; ranks that share a sequence put their own in its place."""
        self.attention_norm = RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.mlp_norm = RMSNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x_BTD: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        """Return the stream after this layer."""
        batch, length, width = x_BTD.shape
        qkv = self.qkv(self.attention_norm(x_BTD)).view(batch, length, 3, self.heads, width // self.heads)
        q_BHTK, k_BHTK, v_BHTK = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q_BHTK, k_BHTK = rotate(q_BHTK, cos_TK, sin_TK), rotate(k_BHTK, cos_TK, sin_TK)
        seen_BHTK = self.attend(q_BHTK, k_BHTK, v_BHTK)
        x_BTD = x_BTD + self.mix(seen_BHTK.transpose(1, 2).reshape(batch, length, width))
        wide_BTE = functional.gelu(self.up(self.mlp_norm(x_BTD)))
        added_BTD: Tensor = x_BTD + self.down(wide_BTE)
        return added_BTD


class Transformer(nn.Module):
    """Predicts the next symbol at every position.

    Args:
        size: Dimensions.
        vocabulary: V.
        context: Longest sequence.
    """

    cos_TK: Tensor
    sin_TK: Tensor

    def __init__(self, size: Size, *, vocabulary: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size.width)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.norm = RMSNorm(size.width)
        cos_TK, sin_TK = rotations(context, size.width // size.heads)
        self.register_buffer("cos_TK", cos_TK, persistent=False)
        self.register_buffer("sin_TK", sin_TK, persistent=False)

    def initialise(self, seed: int) -> None:
        """Draw all weights: normal with σ = 0.02, products that add to the stream with σ / √(2·layers)."""
        generator = torch.Generator().manual_seed(seed)
        deep = INIT_STD / math.sqrt(2 * len(self.layers))
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if name.endswith("gain"):
                    weight.fill_(1.0)
                else:
                    std = deep if name.endswith(("mix.weight", "down.weight")) else INIT_STD
                    weight.copy_(torch.empty(weight.shape).normal_(0.0, std, generator=generator))

    def forward(self, symbols_BT: Tensor, places_T: Tensor | None = None) -> Tensor:
        """Return the logits, (B, T, V), of the symbols that follow.

        Args:
            symbols_BT: Symbols of the whole sequences, or of some of their positions.
            places_T: Those positions; None means all, from the first.
        """
        where = slice(symbols_BT.shape[1]) if places_T is None else places_T
        cos_TK, sin_TK = self.cos_TK[where], self.sin_TK[where]
        x_BTD = self.embedding(symbols_BT)
        for layer in self.layers:
            x_BTD = layer(x_BTD, cos_TK, sin_TK)
        return functional.linear(self.norm(x_BTD), self.embedding.weight)


def next_symbol_loss(model: nn.Module, sequences_BS: Tensor) -> Tensor:
    """Return the mean cross-entropy of every symbol but the first, given those before it (S = T + 1), in nats."""
    logits_BTV = model(sequences_BS[:, :-1])
    return functional.cross_entropy(
        logits_BTV.reshape(-1, logits_BTV.shape[-1]), sequences_BS[:, 1:].reshape(-1)
    )


def loss_and_gradients(model: nn.Module, sequences_BS: Tensor) -> Tensor:
    """Run forward and backward; return the loss, detached, and leave the gradients in the parameters."""
    loss = next_symbol_loss(model, sequences_BS)
    loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
    return loss.detach()


def rotations(length: int, width: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, (T, K), of rotary positions (RoFormer, section 3.2.2), in halves."""
    frequency = ROTARY_BASE ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    angle = torch.outer(torch.arange(length, dtype=torch.float32), frequency)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x_BHTK: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
    """Rotate pairs (k, k + K/2) by their position's angle."""
    first, second = x_BHTK.chunk(2, dim=-1)
    return x_BHTK * cos_TK + torch.cat([-second, first], dim=-1) * sin_TK
