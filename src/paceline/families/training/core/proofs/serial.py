"""One process that trains on the whole batch, from a technique's own weights: what exact steps are held against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.families.training.api.own import on_device
from paceline.families.training.api.replica import Replica
from paceline.families.training.core.data.setting import Setting
from paceline.worker.ranks.session import Session


def make_serial(session: Session, setting: Setting) -> Replica:
    """Return a replica that has the point's model and optimiser to itself."""
    # World size 1: no code of a technique and no exchange takes part in the reference.
    return Replica(setting.task(rank=0, world_size=1), session.comm())


def take_up(serial: Replica, weights: Sequence[Tensor]) -> None:
    """Let one process go on from a technique's weights."""
    for weight, own in zip(serial.weights(), weights, strict=True):
        # In place: the optimiser goes on with its moments, which belong to the same parameters.
        weight.copy_(own)


def leave_gradients(serial: Replica, setting: Setting, whole_BS: Tensor, world_size: int) -> None:
    """Leave the gradients of the whole batch in one process's replica.

    Narrow dtypes round the gradients of every share, so that the whole batch at once would give others: shares are then
    worked through one by one, and averaged in float64. So they are on accelerators, whose products choose the order of
    their sums by their shapes.
    """
    device = setting.device
    # In float32 the gradient of the whole batch is the mean of the shares' up to the order of sums.
    if not setting.by_share or world_size == 1:
        serial.forward_backward(on_device(whole_BS, device))
        return
    trained = [p for p in serial.model.parameters() if p.requires_grad]
    sums = [torch.zeros_like(p, dtype=torch.float64) for p in trained]
    for rank in range(world_size):
        serial.forward_backward(on_device(whole_BS[list(setting.rows(rank, world_size))], device))
        for total, parameter in zip(sums, trained, strict=True):
            total.add_(gradient_of(parameter))
    for total, parameter in zip(sums, trained, strict=True):
        gradient_of(parameter).copy_(total / world_size)


def gradient_of(parameter: torch.nn.Parameter) -> Tensor:
    """Return the gradient that backward has left."""
    assert parameter.grad is not None
    return parameter.grad


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors as one vector, copied."""
    return torch.cat([t.detach().reshape(-1) for t in tensors])
