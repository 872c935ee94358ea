"""Differentiable exchanges of a sequence's parts: each one's backward is the other direction's forward.

Shape suffixes: B sequences, H heads, t a rank's positions, T all of them, K width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.families.collectives.api import rings
from paceline.families.collectives.api.problem import Comm


def gather_positions(comm: Comm, x_BHtK: Tensor, counts: Sequence[int]) -> Tensor:
    """Return all ranks' positions, (B, H, T, K), rank after rank; backward adds up what ranks found for each.

    Args:
        comm: The communicator.
        x_BHtK: This rank's.
        counts: Positions of every rank.
    """
    found: Tensor = _apply(_Gather, comm, tuple(counts), x_BHtK)
    return found


def to_heads(comm: Comm, x_BHtK: Tensor, counts: Sequence[int]) -> Tensor:
    """Return all positions of this rank's share of the heads, (B, H/n, T, K); arguments as ``gather_positions``."""
    return _apply(_ToHeads, comm, tuple(counts), x_BHtK)


def to_positions(comm: Comm, y_BhTK: Tensor, counts: Sequence[int]) -> Tensor:
    """Return all heads of this rank's positions, (B, H, t, K): what ``to_heads`` took apart."""
    return _apply(_ToPositions, comm, tuple(counts), y_BhTK)


def _apply(function: Any, *arguments: Any) -> Tensor:
    found: Tensor = function.apply(*arguments)
    return found


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, counts: tuple[int, ...], x_BHtK: Tensor) -> Tensor:
        ctx.comm, ctx.counts = comm, counts
        parts = [x_BHtK.new_empty(_with_positions(x_BHtK, count)) for count in counts]
        parts[comm.rank] = x_BHtK.contiguous()
        flat = [p.view(-1) for p in parts]
        rings.finish(rings.all_gather(comm, flat, range(len(counts)), comm.rank))
        return torch.cat(parts, dim=2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        (g_BHTK,) = gradients
        comm: Comm = ctx.comm
        parts = [part.contiguous() for part in torch.split(g_BHTK, list(ctx.counts), dim=2)]
        scratch = g_BHTK.new_empty(2 * max(p.numel() for p in parts))
        flat = [p.view(-1) for p in parts]
        rings.finish(rings.reduce_scatter(comm, flat, range(len(parts)), comm.rank, scratch))
        return None, None, parts[comm.rank]


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, counts: tuple[int, ...], x_BHtK: Tensor) -> Tensor:
        ctx.comm, ctx.counts = comm, counts
        return _scatter_heads(comm, counts, x_BHtK)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        return None, None, _scatter_positions(ctx.comm, ctx.counts, gradients[0])


class _ToPositions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, counts: tuple[int, ...], y_BhTK: Tensor) -> Tensor:
        ctx.comm, ctx.counts = comm, counts
        return _scatter_positions(comm, counts, y_BhTK)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        return None, None, _scatter_heads(ctx.comm, ctx.counts, gradients[0])


def _scatter_heads(comm: Comm, counts: tuple[int, ...], x_BHtK: Tensor) -> Tensor:
    # Heads are cut evenly, positions by counts: this rank's heads arrive of all ranks' positions.
    leaving = [part.contiguous() for part in x_BHtK.chunk(len(counts), dim=1)]
    arriving = [x_BHtK.new_empty(_with_positions(leaving[0], count)) for count in counts]
    return torch.cat(_all_to_all(comm, leaving, arriving), dim=2)


def _scatter_positions(comm: Comm, counts: tuple[int, ...], y_BhTK: Tensor) -> Tensor:
    leaving = [part.contiguous() for part in torch.split(y_BhTK, list(counts), dim=2)]
    arriving = [torch.empty_like(leaving[comm.rank]) for _ in counts]
    return torch.cat(_all_to_all(comm, leaving, arriving), dim=1)


def _all_to_all(comm: Comm, leaving: Sequence[Tensor], arriving: list[Tensor]) -> list[Tensor]:
    """Send the i-th part to rank i; return what came from each rank, this rank's own part in its place."""
    size = len(leaving)
    others = [(comm.rank + shift) % size for shift in range(1, size)]
    comm.start(
        sends=[(leaving[peer], peer) for peer in others],
        receives=[(arriving[peer], peer) for peer in others],
    ).wait()
    arriving[comm.rank] = leaving[comm.rank]
    return arriving


def _with_positions(like: Tensor, count: int) -> tuple[int, ...]:
    return (*like.shape[:2], count, like.shape[3])
