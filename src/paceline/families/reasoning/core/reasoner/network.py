"""The reasoner's network: a decoder-only transformer, as trained; ``decoder.py`` is the same one over a cache.

Pre-normalised layers with RMS norms (Zhang and Sennrich, 2019), rotary positions (Su et al., "RoFormer", 2021), a
GELU perceptron of four times the width, an embedding that is the head as well (Press and Wolf, 2017), no biases.

Shape suffixes: B sequences, T positions, D width, H heads, K width of a head, V symbols.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

ROTARY_BASE = 100.0
"""Wave lengths up to about 430 positions: a context of 256 needs no longer ones, and neighbours need short ones."""
NORM_EPSILON = 1e-6
EMBEDDING_STD = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Numbers that the weights' shapes follow from."""

    width: int
    layers: int
    heads: int
    symbols: int
    context: int
    """Most positions of a sequence."""

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return self.width // self.heads


class Layer(nn.Module):
    """Attention and a perceptron, each normalised first and added to the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.width
        self.attention_gain = nn.Parameter(torch.ones(width))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.perceptron_gain = nn.Parameter(torch.ones(width))
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x_BTD: Tensor, visible_BTT: Tensor, rotary_TK: tuple[Tensor, Tensor]) -> Tensor:
        """Return the stream after this layer."""
        batch, length, width = x_BTD.shape
        heads = (batch, length, 3, self.shape.heads, self.shape.head_width)
        normal_BTD = functional.rms_norm(x_BTD, (width,), self.attention_gain, NORM_EPSILON)
        q_BHTK, k_BHTK, v_BHTK = self.qkv(normal_BTD).view(heads).permute(2, 0, 3, 1, 4)
        seen_BHTK = functional.scaled_dot_product_attention(
            rotated(q_BHTK, *rotary_TK), rotated(k_BHTK, *rotary_TK), v_BHTK, attn_mask=visible_BTT[:, None]
        )
        x_BTD = x_BTD + self.mix(seen_BHTK.transpose(1, 2).reshape(batch, length, width))
        normal_BTD = functional.rms_norm(x_BTD, (width,), self.perceptron_gain, NORM_EPSILON)
        added_BTD: Tensor = self.down(functional.gelu(self.up(normal_BTD)))
        return x_BTD + added_BTD


class Network(nn.Module):
    """Symbols in, logits of the next one out."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        if shape.width % shape.heads or shape.head_width % 2:
            raise ValueError(f"a width of {shape.width} for {shape.heads} heads of an even width")
        self.shape = shape
        self.embedding = nn.Embedding(shape.symbols, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.final_gain = nn.Parameter(torch.ones(shape.width))

    def forward(
        self, tokens_BT: Tensor, visible_BTT: Tensor | None = None, positions_T: Tensor | None = None
    ) -> Tensor:
        """Return logits, (B, T, V); without a mask every token sees itself and those before it.

        Positions are those of the rotation, 0, 1, … without any; tokens of branches that do not see each other may
        have the same ones.
        """
        length = tokens_BT.shape[1]
        if visible_BTT is None:
            visible_BTT = torch.ones(1, length, length, dtype=torch.bool).tril()
        x_BTD = self.embedding(tokens_BT)
        chosen = slice(length) if positions_T is None else positions_T
        rotary = tuple(table[chosen] for table in rotary_tables(self.shape, x_BTD.dtype))
        for layer in self.layers:
            x_BTD = layer(x_BTD, visible_BTT, rotary)
        x_BTD = functional.rms_norm(x_BTD, (self.shape.width,), self.final_gain, NORM_EPSILON)
        return x_BTD @ self.embedding.weight.T


def rotary_tables(shape: Shape, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of every position, (context, K); the sines of the first half of K have a minus."""
    frequencies = ROTARY_BASE ** -(
        torch.arange(0, shape.head_width, 2, dtype=torch.float64) / shape.head_width
    )
    angles = torch.outer(torch.arange(shape.context, dtype=torch.float64), frequencies)
    cosines, sines = angles.cos(), angles.sin()
    return torch.cat((cosines, cosines), 1).to(dtype), torch.cat((-sines, sines), 1).to(dtype)


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn the pairs (i, i + K/2) of the last dimension by their position's angles."""
    # RoFormer, equation 34, with halves as pairs; the minus of the first half is in the table.
    return x * cosines + x.roll(x.shape[-1] // 2, -1) * sines


def initialise(network: Network, generator: torch.Generator) -> None:
    """Draw the weights; what is added to the stream starts at zero, so that every layer begins as the identity."""
    nn.init.normal_(network.embedding.weight, std=EMBEDDING_STD, generator=generator)
    for layer in network.layers:
        assert isinstance(layer, Layer)
        for linear in (layer.qkv, layer.up):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5, generator=generator)
        # Output matrices at zero: gradients reach them at once, and the rest as soon as they are not zero any more.
        nn.init.zeros_(layer.mix.weight)
        nn.init.zeros_(layer.down.weight)
