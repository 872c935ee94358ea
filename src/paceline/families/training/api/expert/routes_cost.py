"""Closed forms of exchanges that depend on tokens' routes: moves between ranks, counted on the routes of a run.

Shape suffixes: P passes, B sequences, T positions, L layers, n ranks that rows leave and N ranks that they come to.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.families.training.api.expert.placement import Placement
from paceline.families.training.api.replica import Cost, Task


def ranks_of(task: Task, placement: Placement) -> Tensor:
    """Return the rank of every token's expert in every layer, (P, B, T, L)."""
    assert task.router is not None
    table_LE = torch.tensor(placement)
    layers_L = torch.arange(len(placement))
    # The run's routes: placements were made without them; closed forms are called when the run is over.
    return table_LE[layers_L, task.router.experts_PBTL[: task.steps].cpu()]


def home_of(ranks_PBTL: Tensor, world_size: int) -> Tensor:
    """Return the rank on which every token begins, in the shape of its routes."""
    home_B = torch.arange(ranks_PBTL.shape[1]) % world_size
    return home_B[None, :, None, None].expand_as(ranks_PBTL)


def moves(before_PBTL: Tensor, after_PBTL: Tensor, world_size: int) -> Tensor:
    """Count the rows that go from rank to rank in every layer of every position, (P, T, L, n, N)."""
    passes, _, context, layers = before_PBTL.shape
    pairs = (before_PBTL * world_size + after_PBTL).permute(0, 2, 3, 1).reshape(-1, before_PBTL.shape[1])
    found = torch.zeros(len(pairs), world_size**2, dtype=torch.int64)
    found.scatter_add_(1, pairs, torch.ones_like(pairs))
    return found.view(passes, context, layers, world_size, world_size)


def across(moves_PTLnN: Tensor, row_bytes: int) -> tuple[Tensor, Tensor]:
    """Return the bytes and the messages with rows that every rank sends in every pass, (P, n) each."""
    size = moves_PTLnN.shape[-1]
    others = moves_PTLnN * (1 - torch.eye(size, dtype=torch.int64))
    return row_bytes * others.sum(dim=(1, 2, 4)), (others > 0).sum(dim=(1, 2, 4))


def cost_of(bytes_Pn: Tensor, messages_Pn: Tensor) -> Cost:
    """Return the cost of a run from what every rank sends in every pass."""
    return Cost(
        sent_bytes=float(bytes_Pn.sum(dim=0).max()),
        peak_bytes=float(bytes_Pn.max()),
        messages=float(messages_Pn.sum(dim=0).max()),
    )
