"""What a rank holds, by kind: storages found by walking a technique's objects, each counted once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from paceline.families.training.replica import Replica
from paceline.families.training.torch_parallel import local_part

KINDS = ("parameter", "gradient", "optimizer", "extra", "scratch")
MAX_DEPTH = 6


def state_bytes(replica: Replica) -> dict[str, float]:
    """Return bytes by kind; a storage that several kinds reach belongs to the first of them."""
    optimizer = [t for state in replica.optimizer.state.values() for t in _tensors(state, 1)]
    sources: dict[str, Iterable[Tensor]] = {
        "parameter": (local_part(p) for p in replica.model.parameters()),
        "gradient": (local_part(p.grad) for p in _leaves(replica) if p.grad is not None),
        "optimizer": map(local_part, optimizer),
        "extra": map(local_part, replica.kept.values()),
        "scratch": map(local_part, _tensors(vars(replica), 0)),
    }
    seen: set[int] = set()
    found: dict[str, float] = {}
    for kind in KINDS:
        total = 0
        for tensor in sources[kind]:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                total += storage.nbytes()
        found[kind] = float(total)
    return found


def _leaves(replica: Replica) -> list[nn.Parameter]:
    groups = [p for group in replica.optimizer.param_groups for p in group["params"]]
    return [*replica.model.parameters(), *groups]


def _tensors(value: Any, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
        if value.grad is not None:
            yield value.grad
    elif depth > MAX_DEPTH or isinstance(value, nn.Module | str | bytes | int | float):
        return
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from _tensors(part, depth + 1)
    elif type(value).__module__.startswith("paceline."):
        slots = [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
        yield from _tensors([*vars(value).values()] if hasattr(value, "__dict__") else slots, depth + 1)
