"""What a rank holds, by kind: storages found by walking a technique's objects, each counted once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.families.training.api.replica import Comm, Replica
from paceline.families.training.api.torch_parallel import local_part

PLAIN = (str, bytes, int, float, complex, type, type(None), torch.Generator, torch.device, torch.dtype)
KINDS = ("parameter", "gradient", "optimizer", "extra", "scratch")
STATE = KINDS[:-1]
"""Kinds that together are a rank's state; buffers are none."""
MAX_DEPTH = 6


def state_bytes(replica: Replica) -> dict[str, float]:
    """Return bytes by kind, and those of all state; a storage that several kinds reach belongs to the first of them."""
    kept = replica.kept
    optimizer = [t for state in replica.optimizer.state.values() for t in _tensors(state, 1)]
    optimizer += [kept[name] for name, kind in replica.kept_as.items() if kind == "optimizer"]
    # In this order: a view of a parameter that is also gradient or scratch
    # counts once, as the first kind that reaches it.
    sources: dict[str, Iterable[Tensor]] = {
        "parameter": map(local_part, _leaves(replica)),
        "gradient": (local_part(p.grad) for p in _leaves(replica) if p.grad is not None),
        "optimizer": map(local_part, optimizer),
        "extra": map(local_part, kept.values()),
        "scratch": map(local_part, _tensors(vars(replica), 0)),
    }
    seen: set[int] = set()
    found: dict[str, float] = {}
    for kind in KINDS:
        total = 0
        for tensor in sources[kind]:
            storage = tensor.untyped_storage()
            # By storage, not by tensor: views share memory, and a view of one element keeps all of it alive.
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                total += storage.nbytes()
        found[kind] = float(total)
    return {"state": sum(found[kind] for kind in STATE), **found}


def _leaves(replica: Replica) -> list[nn.Parameter]:
    """Return the model's parameters, shares and what the optimiser steps, unless that is kept as its own state."""
    # Masters are stepped, but kept as the optimiser's state: they must not count as parameters as well.
    masters = {replica.kept[name].data_ptr() for name, kind in replica.kept_as.items() if kind == "optimizer"}
    groups = [p for group in replica.optimizer.param_groups for p in group["params"]]
    stepped = [p for p in groups if local_part(p).data_ptr() not in masters]
    return [*replica.model.parameters(), *replica.owned, *stepped]


def _tensors(value: Any, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
        if value.grad is not None:
            yield value.grad
    # The depth bounds cycles among objects; storages found twice are counted once.
    elif depth > MAX_DEPTH or isinstance(value, PLAIN):
        return
    elif isinstance(value, nn.Module):
        yield from (*value.parameters(), *value.buffers())
    elif isinstance(value, np.ndarray):
        yield torch.from_numpy(value)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset | deque):
        for part in value:
            yield from _tensors(part, depth + 1)
    # The communicator is the harness's; the optimiser's state has been counted under its own kind.
    elif not isinstance(value, Comm | Optimizer):
        slots = [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
        yield from _tensors([*getattr(value, "__dict__", {}).values(), *slots], depth + 1)
