"""What a technique keeps in memory beside its arguments: tensors, arrays and bytes, wherever it put them.

Only objects that Python's collector knows are found: those made after ``begin``, which hides all older ones from it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import numpy
import torch
from torch import Tensor

LEAST_BYTES = 1 << 12
"""Strings of bytes shorter than this are not weights."""

_objects, _referents, _freeze = gc.get_objects, gc.get_referents, gc.freeze
_storage, _Tensor, _array = torch.Tensor.untyped_storage, torch.Tensor, numpy.ndarray
_plain = torch._C.DisableTorchFunctionSubclass


def begin() -> None:
    """Hide all present objects from the collector, and leave collecting to ``collect``."""
    gc.disable()
    # Moves all of them out of the collector's sight, so that only what a technique makes later is found.
    _freeze()


def collect(threshold: int = 10_000) -> None:
    """Collect garbage once there may be some: finalizers run here, and never while calls are timed."""
    if gc.get_count()[0] > threshold:
        gc.collect()


def kept_bytes(ours: Iterable[Tensor], *, strings: bool = False) -> int:
    """Return the bytes that live beside the given tensors, each storage once.

    Args:
        ours: Tensors that the harness holds.
        strings: Count strings of bytes too; a compiler keeps many that are no data.
    """
    found: dict[int, int] = {}
    present = _objects()
    with _plain():
        # Referents too: strings of bytes and plain arrays are not tracked themselves, only what holds them.
        for candidate in (*present, *_referents(*present)):
            if strings or not issubclass(type(candidate), bytes | bytearray):
                address, size = _extent(candidate)
                found[address] = max(size, found.get(address, 0))
        for tensor in ours:
            # By storage, since a view of the harness's tensor is no memory of the technique's own.
            found.pop(_storage(tensor).data_ptr(), None)
    return sum(found.values())


def _extent(candidate: Any) -> tuple[int, int]:
    """Return the address and the size of what an object holds; 0 for what holds nothing of its own."""
    kind = type(candidate)
    if issubclass(kind, _Tensor):
        try:
            storage = _storage(candidate)
            return (0, 0) if storage.device.type == "meta" else (storage.data_ptr(), storage.nbytes())
        except (RuntimeError, NotImplementedError):  # sparse tensors and those of tracers have no storage
            return 0, 0
    if issubclass(kind, _array) and candidate.base is None:
        return candidate.ctypes.data, candidate.nbytes
    if issubclass(kind, bytes | bytearray) and len(candidate) >= LEAST_BYTES:
        return id(candidate), len(candidate)
    return 0, 0
