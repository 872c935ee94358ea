"""How long a part of the program computes, or how many of its lines, when a test compares two such numbers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

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


def lines_of(work: Callable[[], object]) -> int:
    """Count the lines of Python that a call runs: the same number on every machine, however busy it is.

    Each turn of a loop counts, also within one line; what runs inside of C does not.
    """
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines
