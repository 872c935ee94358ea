"""What tells that a file is the one that was read before, without reading it again."""

from __future__ import annotations

import os
from pathlib import Path

Stamp = list[int]

SETTLED_NS = 2_000_000_000
"""A file that was changed just now may change again within one tick of the clock that stamps it."""


def stamp_of(file: Path | int) -> Stamp:
    """Return size, times in nanoseconds, device and number of a file.

    Raises:
        OSError: There is no such file.
    """
    found = file.stat() if isinstance(file, Path) else os.fstat(file)
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino]


def is_settled(stamp: Stamp, now_ns: int) -> bool:
    """Say whether a file was last changed so long ago that another change would give it another stamp."""
    _, modified_ns, changed_ns, *_ = stamp
    return now_ns - max(modified_ns, changed_ns) > SETTLED_NS
