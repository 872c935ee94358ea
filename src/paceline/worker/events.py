"""Event files: the only channel from a rank to the controller.

One JSON object a line, appended and flushed line by line, so that a killed rank loses at most the line it was writing.
Floats that JSON cannot carry are refused here rather than written as ``NaN``.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any


class EventLog:
    """Append-only writer of one rank's events."""

    def __init__(self, path: Path, *, launch: int, attempt: int, rank: int) -> None:
        self.path = path
        self._common = {"launch": launch, "attempt": attempt, "rank": rank}
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event with the time, launch, attempt and rank; the line is on disk order when this returns."""
        record = {"event": event, "time_s": round(time.time(), 6), **self._common, **fields}
        line = json.dumps(_finite(record), separators=(",", ":"), allow_nan=False) + "\n"
        os.write(self._file, line.encode())

    def close(self) -> None:
        """Flush to the disk and close."""
        os.fsync(self._file)
        os.close(self._file)


def _finite(value: Any) -> Any:
    """Replace NaN and infinities by None: the reader decides what an absent number means."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
