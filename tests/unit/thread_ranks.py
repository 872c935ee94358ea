"""Ranks that are threads of one process, all of them on one core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def on_ranks_of_threads(work: Callable[[int], T], ranks: int) -> list[T]:
    """Let each rank do its work, at once with the others; return what they found, by rank.

    Raises:
        Exception: What a rank raised; those that wait for its messages end by the limit of their group.
    """
    with _on_one_core(), ThreadPoolExecutor(ranks) as threads:
        return list(threads.map(work, range(ranks)))


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Keep the threads that are started in here on one core, where the system lets us choose.

    Only one of them holds the interpreter's lock. Over two cores they spend a third of their time, and ten times as
    much of the kernel's, on handing it to each other.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.sched_setaffinity(0, {sorted(cores)[worker % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
