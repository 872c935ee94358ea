"""The contract of techniques that share one model's layers between ranks, step by step.

A technique takes the weights that it needs, computes the tokens of each step with the other ranks, and leaves their
keys and values in the cache of the rank that will attend to them. It may have several modes; which one a step is
computed in is said by ``choose`` when a load is played, and at random when the technique is proved. What it holds,
sends and moves is counted here and in the communicator.

Shapes: N tokens of a step, R of them whose next token is wanted, h hidden, H heads of queries, G heads of keys, d width
of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from paceline.base.techniques.technique import UnsupportedError
from paceline.families.collectives.api.problem import Comm, chunk_bounds
from paceline.families.serving.api.costs import Piece, StepCosts
from paceline.families.serving.api.layers import Shape, Turns, Weights, rms_norm, rotated
from paceline.families.serving.api.paged import Batch, Paged, hidden_places

__all__ = [
    "Batch",
    "Cache",
    "Comm",
    "Distributed",
    "Left",
    "Piece",
    "Setting",
    "Shape",
    "StepCosts",
    "Tensor",
    "UnsupportedError",
    "chunk_bounds",
    "rms_norm",
    "rotated",
]

WHOLE = slice(None)
UNWRITTEN = 1e30
"""What a place holds before it is written: a token that attends to it is far off, one that hides it is not."""


class Cache:
    """Keys and values on one rank, for each range of heads that it has chosen.

    Args:
        shape: Of the model.
        num_slots: Tokens that fit.
        dtype: Of all numbers.
        device: Where they are.
    """

    def __init__(self, shape: Shape, num_slots: int, dtype: torch.dtype, device: torch.device) -> None:
        self._shape, self._slots, self._dtype, self._device = shape, num_slots, dtype, device
        self._ranges: dict[tuple[int, int], Paged] = {}
        self._batch: Batch | None = None
        self._fresh: set[int] = set()
        self._hidden = torch.empty(0)
        self.moved_bytes = 0
        """Written for tokens that an earlier step computed."""

    def begin(self, batch: Batch, *, proving: bool) -> None:
        """Prepare for a step; the harness calls it. Places of its tokens become unwritten where it is proved."""
        self._batch, self._hidden = batch, hidden_places(batch, self._dtype)
        self._fresh = set(batch.slots_N.tolist()) if proving else set()
        # Only where it is proved: overwriting costs time, and shows who attends to a token before its keys are
        # written.
        if proving:
            for paged in self._ranges.values():
                paged.numbers[:, batch.slots_N] = UNWRITTEN

    def _of(self, heads: range) -> Paged:
        key = (heads.start, heads.stop)
        if key not in self._ranges:
            if not 0 <= heads.start < heads.stop <= self._shape.kv_heads or heads.step != 1:
                raise ValueError(f"{heads} is no range of {self._shape.kv_heads} heads of keys")
            # A store for each range that is named: a rank that keeps all heads holds all of them, and `held` counts
            # it.
            paged = Paged(
                self._shape.layers, self._slots, len(heads), self._shape.head_dim, self._dtype, self._device
            )
            paged.numbers.fill_(UNWRITTEN)
            self._ranges[key] = paged
        return self._ranges[key]

    def write(self, layer: int, heads: range, slots_N: Tensor, k_NGd: Tensor, v_NGd: Tensor) -> None:
        """Keep keys and values of some tokens for a range of heads.

        Args:
            layer: Of which.
            heads: Of keys, G of them in a row; the same range is named to read and to attend.
            slots_N: Where in the cache, int64.
            k_NGd: Turned keys, (N, G, d).
            v_NGd: Values, (N, G, d).

        Raises:
            ValueError: The model has no such heads.
        """
        if self._fresh:
            # Slots of earlier steps: keys and values that had to move here, as a switch of modes must not need.
            late = sum(slot not in self._fresh for slot in slots_N.tolist())
            self.moved_bytes += late * 2 * len(heads) * self._shape.head_dim * k_NGd.element_size()
        self._of(heads).write(layer, slots_N, k_NGd, v_NGd)

    def read(self, layer: int, heads: range, slots_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return copies of keys and values of some tokens, each (N, G, d), for who moves them.

        Raises:
            ValueError: The model has no such heads.
        """
        k_NGd, v_NGd = self._of(heads).numbers[layer][slots_N].unbind(1)
        return k_NGd.contiguous(), v_NGd.contiguous()

    def attend(self, layer: int, heads: range, q_NHd: Tensor) -> Tensor:
        """Return attention of each token of the step over its request so far, (N, H·d).

        Args:
            layer: Of which.
            heads: Of keys, as they were written.
            q_NHd: Turned queries of all tokens of the step, for the heads that read these heads of keys.
        """
        assert self._batch is not None
        return self._of(heads).attend(layer, q_NHd, self._batch, self._hidden)

    def held(self) -> tuple[int, Tensor]:
        """Return how many heads of how many tokens and layers are written, and which slots have any, (slots)."""
        count, used = 0, torch.zeros(self._slots, dtype=torch.float64)
        for paged in self._ranges.values():
            # One number of a head's keys tells for the head; the sentinel is far outside of what projections give.
            written = paged.numbers[:, :, 0, :, 0] != UNWRITTEN
            count += int(written.sum())
            used += written.sum((0, 2)).cpu()
        return count, (used > 0).double()


class Setting:
    """What a technique has of its rank.

    Args:
        rank: This rank, from 0.
        world_size: Ranks that share the model's layers.
        shape: Sizes of the model.
        weights: All of it, in the point's precision.
        turns: Rotary turns of its positions.
        cache: Of this rank.
    """

    def __init__(
        self, *, rank: int, world_size: int, shape: Shape, weights: Weights, turns: Turns, cache: Cache
    ) -> None:
        self.rank, self.world_size, self.shape, self.cache = rank, world_size, shape, cache
        self._weights, self._turns = weights, turns
        self.taken_bytes = 0
        """Of weights that this rank has taken."""

    def take(self, layer: int, name: str, rows: slice = WHOLE, columns: slice = WHOLE) -> Tensor:
        """Return a copy of some of a layer's weights, whose bytes count.

        Names are norm, q, k, v, o, ffn_norm, gate, up and down; matrices are (outputs, inputs), norms (h).
        """
        whole = self._weights[f"{layer}.{name}"]
        # A copy: what a rank holds is what it has taken, and nobody can change the harness's weights.
        found = (whole[rows] if whole.dim() == 1 else whole[rows, columns]).clone()
        self.taken_bytes += found.numel() * found.element_size()
        return found

    def embed(self, tokens: Tensor) -> Tensor:
        """Return what enters the first layer, (N, h); every rank has the table."""
        return self._weights["embedding"][tokens]

    def turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of positions, for ``rotated``."""
        return self._turns(positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What leaves the last layer on one rank."""

    rows: Tensor
    """Rows of the step that this rank answers for; every row whose next token is wanted is some rank's."""
    states: Tensor
    """Of these, (rows, h)."""


class Distributed(Protocol):
    """A technique of the operation ``distribute``: ``T(setting, comm, **options)``.

    One with the property ``replicated`` has a whole model on every rank, and requests of its own: its setting has one
    rank.
    """

    modes: Sequence[str]
    """Ways in which a step can be computed, over one cache."""

    def step(self, batch: Batch, mode: int) -> Left:
        """Compute a step; all ranks are given the same one."""

    def learn(self, costs: Sequence[StepCosts]) -> None:
        """Hear what steps cost in each mode, before any is chosen."""

    def choose(self, pieces: Sequence[Piece]) -> int:
        """Return the mode of a step; the same for the same step."""
