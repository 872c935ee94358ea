"""Python's garbage collector, where it looks in vain."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection(*, staying: bool = False) -> Iterator[None]:
    """Let nobody look for cycles among millions of records that all stay: half of the time of reading them.

    Args:
        staying: Nor later among what is there by then, where no cycle is worth the looking: records have none.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if staying:
            gc.freeze()
        if was_on:
            gc.enable()
