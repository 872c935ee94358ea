"""A plain forward computation of the engine's model, without cache, batch or blocks; answers are held against it.

It shares the weights' drawing with the engine and nothing else. Greedy decoding takes the likeliest token; where two
are as likely but for rounding, either is right. So an answer is judged token by token: with all that was answered
before given, the token's logit must be the best one's but for what the same computation in the engine's precision is
off from one in float64, times ``ROUNDINGS``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paceline.families.serving.api.layers import DTYPES, EPSILON, ROTARY_BASE, Shape, Weights
from paceline.families.serving.core.engine.model import draw_weights

ROUNDINGS = 8.0
"""The engine sums in another order than a plain computation; each order has errors of the same size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One answer."""

    wrong_at: int | None
    """Place of the first token that is not the likeliest; None if all are."""
    expected: int | None
    """The token that should be there."""
    short_by: float
    """The largest distance of a token's logit to the best one's: more than 0 where rounding decided."""
    allowed: float


class Reference:
    """Judges answers of one model; the same answer to the same prompt, by another technique, is looked up.

    Args:
        model: Sizes, seed and dtype, as the engine gets them.
    """

    def __init__(self, model: Mapping[str, Any]) -> None:
        self.shape = Shape.of(model)
        drawn = draw_weights(self.shape)
        # The engine's weights are rounded ones: exact means exact arithmetic on the same weights.
        rounded = {name: w.to(DTYPES[self.shape.dtype]) for name, w in drawn.items()}
        self._exact = {name: w.double() for name, w in rounded.items()}
        self._rounded = rounded
        self._judged: dict[tuple[tuple[int, ...], tuple[int, ...]], Judged] = {}

    def judge(self, prompt: Sequence[int], answer: Sequence[int]) -> Judged:
        """Judge one answer."""
        key = tuple(prompt), tuple(answer)
        if key not in self._judged:
            self._judged[key] = self._compute(prompt, answer)
        return self._judged[key]

    @torch.inference_mode()
    def _compute(self, prompt: Sequence[int], answer: Sequence[int]) -> Judged:
        # Teacher forcing: one token that rounding decided otherwise must not make all further ones wrong.
        sequence = torch.tensor([*prompt, *answer[:-1]])
        rows = slice(len(prompt) - 1, None)
        exact = forward(self.shape, self._exact, sequence)[rows]
        # The allowance is measured on this very text: how far rounding moves logits differs by model, type and length.
        plain = forward(self.shape, self._rounded, sequence)[rows].double()
        allowed = ROUNDINGS * float((plain - exact).abs().max())
        best, tokens = exact.max(-1)
        short = best - exact[torch.arange(len(answer)), torch.tensor(list(answer))]
        wrong = (short > allowed).nonzero()
        place = int(wrong[0, 0]) if len(wrong) else None
        return Judged(
            wrong_at=place,
            expected=None if place is None else int(tokens[place]),
            short_by=float(short.max()),
            allowed=allowed,
        )

    @torch.inference_mode()
    def greedy(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """Return the likeliest continuation, one whole forward computation a token."""
        sequence = list(prompt)
        for _ in range(tokens):
            sequence.append(int(forward(self.shape, self._exact, torch.tensor(sequence))[-1].argmax()))
        return sequence[len(prompt) :]


def forward(shape: Shape, weights: Weights, tokens_T: Tensor) -> Tensor:
    """Return logits of all positions of one sequence, [T, vocab]."""
    x = states(shape, weights, tokens_T)
    return _normed(x, weights["norm"]) @ weights["head"].T


def states(shape: Shape, weights: Weights, tokens_T: Tensor) -> Tensor:
    """Return what leaves the last layer at all positions of one sequence, [T, hidden]."""
    x = weights["embedding"][tokens_T]
    count, width = len(tokens_T), shape.head_dim
    place = torch.arange(count, dtype=torch.float64)
    rates = ROTARY_BASE ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    # As complex numbers and head by head: written otherwise than the engine on purpose, so that both err together in
    # nothing.
    turn = torch.polar(torch.ones(count, width // 2, dtype=torch.float64), place[:, None] * rates)
    seen = torch.ones(count, count, dtype=torch.bool).tril()
    for layer in range(shape.layers):
        normed = _normed(x, weights[f"{layer}.norm"])
        mixed = []
        for head in range(shape.heads):
            group = head // (shape.heads // shape.kv_heads)
            q = _turned(normed @ weights[f"{layer}.q"][head * width : (head + 1) * width].T, turn)
            k = _turned(normed @ weights[f"{layer}.k"][group * width : (group + 1) * width].T, turn)
            v = normed @ weights[f"{layer}.v"][group * width : (group + 1) * width].T
            scores = (q @ k.T / math.sqrt(width)).masked_fill(~seen, float("-inf"))
            mixed.append(torch.softmax(scores, -1) @ v)
        x = x + torch.cat(mixed, -1) @ weights[f"{layer}.o"].T
        normed = _normed(x, weights[f"{layer}.ffn_norm"])
        gate = normed @ weights[f"{layer}.gate"].T
        x = (
            x
            + (gate * torch.sigmoid(gate) * (normed @ weights[f"{layer}.up"].T)) @ weights[f"{layer}.down"].T
        )
    return x


def _normed(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPSILON) * weight


def _turned(x_Td: Tensor, turn: Tensor) -> Tensor:
    """Multiply pairs (i, i + d/2), read as complex numbers, by their positions' turns."""
    half = x_Td.shape[-1] // 2
    pairs = torch.complex(x_Td[:, :half].double(), x_Td[:, half:].double()) * turn
    return torch.cat([pairs.real, pairs.imag], -1).to(x_Td.dtype)
