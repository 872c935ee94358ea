"""Tensor parallelism: every rank computes all tokens with a share of each layer's heads and inner columns.

Shoeybi, Patwary, Puri, LeGresley, Casper and Catanzaro, 2019, "Megatron-LM: Training Multi-Billion Parameter Language
Models Using Model Parallelism" (arXiv:1909.08053), section 3: products split by columns, then by rows, and one sum
after each pair.

Algorithm: rank r of P has heads r·H/P to (r + 1)·H/P of queries, the heads of keys that these read, and 1/P of the
inner columns. It adds what its heads and its inner columns give to all tokens; a ring sums that over ranks, twice a
layer.
Cost: a layer sends 4·(P - 1)/P·N·h numbers from every rank in 4·(P - 1) messages; 1/P of the weights a rank; keys and
values once, or P/G times where there are fewer heads of keys than ranks.
Differences: the head's product and the embedding are the harness's.
Limits: heads must be divisible by P, and G by P or P by G; what is sent grows with N however large P is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import silu

from paceline import technique
from paceline.families.collectives.api import rings
from paceline.families.serving.api.distributing import (
    Batch,
    Comm,
    Left,
    Piece,
    Setting,
    Shape,
    StepCosts,
    UnsupportedError,
    chunk_bounds,
    rms_norm,
    rotated,
)


def heads_of(shape: Shape, place: int, ways: int) -> tuple[range, range]:
    """Return the heads of queries that are one rank's, and the heads of keys that these read.

    Raises:
        UnsupportedError: Heads cannot be dealt out evenly.
    """
    # With more ranks than heads of keys, each head is held by P/G ranks; an uneven split would part a group of queries
    # from its keys.
    if shape.heads % ways or (shape.kv_heads % ways and ways % shape.kv_heads):
        raise UnsupportedError(
            f"{shape.heads} heads over {shape.kv_heads} heads of keys cannot be dealt out to {ways} ranks"
        )
    count, group = shape.heads // ways, shape.heads // shape.kv_heads
    queries = range(place * count, (place + 1) * count)
    # Rounded outwards: a rank whose queries are a part of one group needs that group's whole head of keys.
    return queries, range(queries.start // group, -(-queries.stop // group))


class Shards:
    """One rank's share of all layers: some heads, and some of the inner columns.

    Args:
        setting: Of the rank.
        place: Which share.
        ways: How many there are.
    """

    def __init__(self, setting: Setting, place: int, ways: int) -> None:
        shape = self._shape = setting.shape
        self.queries, self.keys = heads_of(shape, place, ways)
        inner = slice(*chunk_bounds(shape.inner, ways)[place])
        rows, fewer = (_rows(heads, shape.head_dim) for heads in (self.queries, self.keys))
        self._layers: list[dict[str, Tensor]] = []
        for layer in range(shape.layers):
            taken = {name: setting.take(layer, name) for name in ("norm", "ffn_norm")}
            parts = [setting.take(layer, "q", rows), *(setting.take(layer, n, fewer) for n in ("k", "v"))]
            # One product instead of three; the same for gate and up. Splitting outputs needs no message: each rank has
            # whole columns of the result.
            taken["qkv"] = torch.cat(parts)
            # Split along its inputs, which are this rank's heads: the product is a partial sum over ranks. So is
            # `down`'s.
            taken["o"] = setting.take(layer, "o", columns=rows)
            taken["gate_up"] = torch.cat([setting.take(layer, n, inner) for n in ("gate", "up")])
            taken["down"] = setting.take(layer, "down", columns=inner)
            self._layers.append(taken)

    def project(
        self, layer: int, x_Nh: Tensor, turns: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return turned queries and keys, and values, each (N, heads of it, d)."""
        taken, queries, keys = self._layers[layer], len(self.queries), len(self.keys)
        flat = rms_norm(x_Nh, taken["norm"]) @ taken["qkv"].T
        qkv = flat.view(len(x_Nh), queries + 2 * keys, self._shape.head_dim)
        turned = rotated(qkv[:, : queries + keys], *turns)
        return turned[:, :queries], turned[:, queries:], qkv[:, queries + keys :]

    def mix(self, layer: int, mixed_N: Tensor) -> Tensor:
        """Return what this share's heads add to every token, (N, h); all shares' sum is attention's output."""
        return mixed_N @ self._layers[layer]["o"].T

    def feed_forward(self, layer: int, x_Nh: Tensor) -> Tensor:
        """Return what this share's inner columns add to every token, (N, h)."""
        taken = self._layers[layer]
        gate, up = (rms_norm(x_Nh, taken["ffn_norm"]) @ taken["gate_up"].T).chunk(2, -1)
        return (silu(gate) * up) @ taken["down"].T


def _rows(heads: range, width: int) -> slice:
    return slice(heads.start * width, heads.stop * width)


def total(comm: Comm, x_Nh: Tensor, members: Sequence[int]) -> Tensor:
    """Return the members' sum on each of them, by a ring: reduce-scatter, then all-gather."""
    if len(members) == 1 or not x_Nh.numel():
        return x_Nh
    # The ring works in place. That is safe, as x_Nh is the fresh output of a product that nobody else holds.
    place, flat = members.index(comm.rank), x_Nh.contiguous().flatten()
    chunks = [flat[first:last] for first, last in chunk_bounds(flat.numel(), len(members))]
    # The first chunk is the largest. Two halves, since the ring posts a receive while it adds the one before.
    scratch = torch.empty(2 * chunks[0].numel(), dtype=flat.dtype, device=flat.device)
    # Gathering copies each chunk's one sum, so all ranks go on with the same bits and stay in step.
    rings.finish(rings.reduce_scatter(comm, chunks, members, place, scratch))
    rings.finish(rings.all_gather(comm, chunks, members, place))
    return flat.view_as(x_Nh)


@technique(
    name="tensor-parallel",
    family="serving",
    implements=("distribute",),
    summary="every rank computes all tokens with a share of the heads and inner columns; two sums a layer",
)
class TensorParallel:
    """All ranks share every product."""

    modes = ("tensor",)

    def __init__(self, setting: Setting, comm: Comm) -> None:
        self._setting, self._comm = setting, comm
        self._members = range(setting.world_size)
        self._shards = Shards(setting, setting.rank, setting.world_size)

    def step(self, batch: Batch, mode: int) -> Left:
        """Compute all tokens; every rank has the result."""
        setting, shards = self._setting, self._shards
        x, turns = setting.embed(batch.tokens_N), setting.turns(batch.positions_N)
        for layer in range(setting.shape.layers):
            q, k, v = shards.project(layer, x, turns)
            setting.cache.write(layer, shards.keys, batch.slots_N, k, v)
            mixed = setting.cache.attend(layer, shards.keys, q)
            # The residual is added after the sum: added on each rank before, it would count P times.
            x = x + total(self._comm, shards.mix(layer, mixed), self._members)
            x = x + total(self._comm, shards.feed_forward(layer, x), self._members)
        return Left(rows=batch.last_rows, states=x[batch.last_rows])

    def learn(self, costs: Sequence[StepCosts]) -> None:
        """Have no choice."""

    def choose(self, pieces: Sequence[Piece]) -> int:
        """Return the only mode."""
        return 0
