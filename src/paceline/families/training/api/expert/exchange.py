"""Differentiable exchanges of expert parallelism: of tokens' rows between ranks, and of shares of weights.

Each one's backward is the other direction: an all-to-all's is an all-to-all, a gathering's a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.families.collectives.api import rings
from paceline.families.collectives.api.problem import Comm


def all_to_all(comm: Comm, parts_n: Tensor, members: Sequence[int] | None = None) -> Tensor:
    """Return what each member sent to this rank, (n, …): part i of every rank goes to member i.

    Args:
        comm: The communicator.
        parts_n: Equal parts, one for each member.
        members: Ranks that exchange, this one among them; all by default.
    """
    ranks = tuple(range(comm.world_size) if members is None else members)
    found: Tensor = _apply(_AllToAll, comm, ranks, parts_n)
    return found


def all_gather(comm: Comm, own: Tensor, members: Sequence[int] | None = None) -> Tensor:
    """Return what the members hold, (n, …), around a ring; backward adds up what they found for each."""
    ranks = tuple(range(comm.world_size) if members is None else members)
    found: Tensor = _apply(_AllGather, comm, ranks, own)
    return found


def _apply(function: Any, *arguments: Any) -> Any:
    return function.apply(*arguments)


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, members: tuple[int, ...], parts_n: Tensor) -> Tensor:
        ctx.comm, ctx.members = comm, members
        return _exchange(comm, members, parts_n)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        # An all-to-all is a permutation of parts over ranks, and its own transpose.
        return None, None, _exchange(ctx.comm, ctx.members, gradients[0])


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, members: tuple[int, ...], own: Tensor) -> Tensor:
        ctx.comm, ctx.members = comm, members
        place = members.index(comm.rank)
        whole_n = own.new_empty(len(members), *own.shape)
        whole_n[place] = own
        rings.finish(rings.all_gather(comm, [part.view(-1) for part in whole_n], members, place))
        return whole_n

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        comm: Comm = ctx.comm
        place = ctx.members.index(comm.rank)
        # A copy: the ring adds partial sums into its chunks, and autograd may use this gradient elsewhere.
        parts_n = gradients[0].clone(memory_format=torch.contiguous_format)
        scratch = parts_n.new_empty(2 * parts_n[place].numel())
        rings.finish(
            rings.reduce_scatter(comm, [part.view(-1) for part in parts_n], ctx.members, place, scratch)
        )
        return None, None, parts_n[place]


def _exchange(comm: Comm, members: tuple[int, ...], parts_n: Tensor) -> Tensor:
    leaving = parts_n.contiguous()
    arriving = torch.empty_like(leaving)
    # All sends and receives start in one call: no rank has to receive before it may send.
    others = [(place, rank) for place, rank in enumerate(members) if rank != comm.rank]
    comm.start(
        sends=[(leaving[place], rank) for place, rank in others],
        receives=[(arriving[place], rank) for place, rank in others],
    ).wait()
    place = members.index(comm.rank)
    arriving[place] = leaving[place]
    return arriving
