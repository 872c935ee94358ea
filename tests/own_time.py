"""How long a part of the program computes, when a test compares two such times."""

from __future__ import annotations

import time
from collections.abc import Callable

from paceline.base.collection import without_collection


def least_seconds(work: Callable[[], object], times: int = 3) -> float:
    """The least processor time of several calls.

    The collector rests: it looks through everything that the tests before have left in this process, and its
    time would be counted against whoever is at work when it wakes.
    """
    seconds = []
    with without_collection():
        for _ in range(times):
            begin = time.process_time()
            work()
            seconds.append(time.process_time() - begin)
    return min(seconds)
