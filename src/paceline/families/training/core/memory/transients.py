"""What a step makes and frees again: activations, gradients and buffers, counted storage by storage while they live."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import (
    TorchDispatchMode,
)  # the only hook that sees what autograd's own code makes
from torch.utils._pytree import tree_leaves


class Transients(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own annotation is missing
    """Counts the bytes of storages that operations inside make, until they are freed, and of those filled meanwhile.

    Autograd keeps storages alive that no Python object refers to; torch keeps their Python object with them, so that a
    weak reference tells when they have gone. Views and operations in place make nothing.

    Attributes:
        peak_bytes: Most that was alive at one time.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.peak_bytes = 0
        self._now = 0
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._empty: list[torch.UntypedStorage] = []

    def look_at(self, held: Iterable[torch.UntypedStorage]) -> None:
        """Count what is empty among held storages while it is filled: its size changes without an operation."""
        empty = {id(storage): storage for storage in held if not storage.nbytes()}
        self._empty = list(empty.values())

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and count what it returns."""
        # By storage: a view or an in-place result returns memory that was given, and makes nothing.
        given = {id(t.untyped_storage()) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                if id(storage) not in given and id(storage) not in self._alive:
                    self._made(storage)
        # Storages that a technique fills and frees by resize_ are not made by
        # an operation: they are looked at after each.
        filled = sum(storage.nbytes() for storage in self._empty)
        self.peak_bytes = max(self.peak_bytes, self._now + filled)
        return found

    def _made(self, storage: torch.UntypedStorage) -> None:
        number, size = id(storage), storage.nbytes()

        def freed(_: object) -> None:
            self._now -= size
            # ids are used again after a storage has gone, so its entry must go with it.
            del self._alive[number]

        self._alive[number] = weakref.ref(storage, freed)
        self._now += size
