"""Ulysses in inference: ranks share the tokens of a step for products, and the heads for attention.

Jacobs, Tanaka, Zhang, Zhang, Song, Rajbhandari and He, 2023, "DeepSpeed Ulysses" (arXiv:2309.14509), section 3, for
training; Hidayetoglu, Qiao, Wyatt, Rasley, He and Rajbhandari, 2025, "Shift Parallelism" (arXiv:2509.16495), for
inference with grouped heads and few tokens, and for tensor parallelism inside.

Algorithm: P = S·T ranks; rank t·S + s has share t of T of the weights (heads and inner columns) and part s of S of the
step's tokens. It makes queries, keys and values of its tokens for the heads of its share; an all-to-all between the S
ranks of one share gives each of them all tokens of H/P heads, where it writes the cache and attends. A second
all-to-all brings each token's heads back together. Sums over the T shares follow, on a rank's own tokens.
Cost: with T = 1 a layer sends 2·(N/P)·(P - 1)/P·(h + G'·d) numbers from a rank, G' = max(G, P) heads of keys, in
2·(P - 1) messages. Tensor parallelism sends 2·P·h/(h + G'·d) times as much. 1/T of the weights a rank. The cache is
that of tensor parallelism: rank r has heads r·H/P to (r + 1)·H/P.
Differences: tokens that do not divide are dealt out unevenly; where there are fewer heads of keys than ranks, a head's
keys are sent to each rank that reads them.
Limits: heads as in tensor parallelism of P ranks. With fewer tokens than S some ranks have none, and the others read
all weights for theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from paceline.baselines.serving.tensor_parallel import Shards, heads_of, total
from torch import Tensor

from paceline import technique
from paceline.families.serving.api.distributing import (
    Batch,
    Comm,
    Left,
    Piece,
    Setting,
    StepCosts,
    UnsupportedError,
    chunk_bounds,
)


@technique(
    name="ulysses-inference",
    family="serving",
    implements=("distribute",),
    summary="ranks share a step's tokens for products and the heads for attention; two all-to-alls a layer",
)
class UlyssesInference:
    """Tokens are shared, and heads between two all-to-alls.

    Args:
        setting: Of the rank.
        comm: The communicator.
        tensor: Shares of the weights, T.
    """

    modes = ("sequence",)

    def __init__(self, setting: Setting, comm: Comm, *, tensor: int = 1) -> None:
        if setting.world_size % tensor:
            raise UnsupportedError(f"{setting.world_size} ranks have no {tensor} equal shares")
        self._setting, self._comm = setting, comm
        self._size = setting.world_size // tensor
        share, self._part = divmod(setting.rank, self._size)
        self._shards = Shards(setting, share, tensor)
        first = share * self._size
        self._peers = range(first, first + self._size)
        self._sharing = range(self._part, setting.world_size, self._size)
        # Split over all P ranks and not over S: rank r gets the heads that it has in tensor parallelism, so that the
        # two can share a cache.
        self._heads = [heads_of(setting.shape, peer, setting.world_size) for peer in self._peers]
        self._keys = self._heads[self._part][1]

    def step(self, batch: Batch, mode: int) -> Left:
        """Compute this rank's tokens, and attention of its heads for all."""
        setting, shards, comm = self._setting, self._shards, self._comm
        bounds = chunk_bounds(len(batch.tokens_N), self._size)
        first, last = bounds[self._part]
        x, turns = setting.embed(batch.tokens_N[first:last]), setting.turns(batch.positions_N[first:last])
        for layer in range(setting.shape.layers):
            q, k, v = shards.project(layer, x, turns)
            q, k, v = self._to_heads(q, k, v, bounds)
            # Behind the all-to-all this rank has all tokens of its heads, so it writes all slots of the step.
            setting.cache.write(layer, self._keys, batch.slots_N, k, v)
            mixed = self._to_tokens(setting.cache.attend(layer, self._keys, q), bounds)
            # Only over ranks with the same tokens; with T = 1 that is this rank alone, and nothing is sent.
            x = x + total(comm, shards.mix(layer, mixed), self._sharing)
            x = x + total(comm, shards.feed_forward(layer, x), self._sharing)
        wanted = batch.last_rows[(batch.last_rows >= first) & (batch.last_rows < last)]
        return Left(rows=wanted, states=x[wanted - first])

    def _to_heads(
        self, q_nHd: Tensor, k_nGd: Tensor, v_nGd: Tensor, bounds: Sequence[tuple[int, int]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Give each peer its heads of this rank's tokens; return this rank's heads of all tokens."""
        shards, width = self._shards, self._setting.shape.head_dim
        leaving = []
        for queries, keys in self._heads:
            own = slice(queries.start - shards.queries.start, queries.stop - shards.queries.start)
            read = slice(keys.start - shards.keys.start, keys.stop - shards.keys.start)
            # Queries, keys and values in one message: with few tokens the number of messages costs more than their
            # bytes.
            leaving.append(torch.cat([q_nHd[:, own], k_nGd[:, read], v_nGd[:, read]], 1))
        queries, keys = self._heads[self._part]
        count, kept = len(queries), len(keys)
        landing = [q_nHd.new_empty(last - first, count + 2 * kept, width) for first, last in bounds]
        self._exchange(leaving, landing)
        whole = torch.cat(landing)
        return whole[:, :count], whole[:, count : count + kept], whole[:, count + kept :]

    def _to_tokens(self, mixed_N: Tensor, bounds: Sequence[tuple[int, int]]) -> Tensor:
        """Give each peer its tokens of this rank's heads; return the share's heads of this rank's tokens."""
        leaving = [mixed_N[first:last].contiguous() for first, last in bounds]
        landing = [torch.empty_like(leaving[self._part]) for _ in self._peers]
        self._exchange(leaving, landing)
        # Peers' heads follow each other in the order of their ranks, as the columns of the share's output matrix do.
        return torch.cat(landing, 1)

    def _exchange(self, leaving: Sequence[Tensor], landing: list[Tensor]) -> None:
        landing[self._part] = leaving[self._part]
        others = [n for n in range(self._size) if n != self._part]
        # All started before any is waited for, so the exchange cannot deadlock. Empty parts are not sent, and both
        # sides know from the bounds which are.
        self._comm.start(
            sends=[(leaving[n], self._peers[n]) for n in others],
            receives=[(landing[n], self._peers[n]) for n in others],
        ).wait()

    def learn(self, costs: Sequence[StepCosts]) -> None:
        """Have no choice."""

    def choose(self, pieces: Sequence[Piece]) -> int:
        """Return the only mode."""
        return 0
