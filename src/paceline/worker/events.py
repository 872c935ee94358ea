"""Event files: the only channel from a rank to the controller.

One JSON object a line, appended and flushed line by line, so that a killed rank loses at most the line it was writing.
What is left of such a line goes when the file is opened again; a line for which the disk has no room is taken back.
Floats that JSON cannot carry are refused here rather than written as ``NaN``.
"""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from paceline.base.errors import InfrastructureError
from paceline.base.root_cause import is_lasting, sentence, traceback_of

CHUNK_BYTES = 64 * 1024
START = "-|-|start"
"""The context of a rank that has not begun a block."""
ROOM_BYTES = 1 << 20
"""Room without which a failure is the disk's: more than the longest result and the traces of several ranks."""


class EventLog:
    """Append-only writer of one rank's events."""

    def __init__(self, path: Path, *, launch: int, attempt: int, rank: int) -> None:
        self.path = path
        self._common = {"launch": launch, "attempt": attempt, "rank": rank}
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _drop_torn_line(self._file)

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event with the time, launch, attempt and rank; the line is on disk order when this returns.

        Raises:
            OSError: The disk is full; the file is as it was before.
        """
        record = {"event": event, "time_s": round(time.time(), 6), **self._common, **fields}
        line = json.dumps(_finite(record), separators=(",", ":"), allow_nan=False) + "\n"
        data = line.encode()
        written = os.write(self._file, data)
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise

    def raised(self, error: BaseException, *, context: str, status: str, **fields: Any) -> None:
        """Write what this rank raised: its root in one line, and the traceback.

        Args:
            error: What was caught.
            context: Block, technique and stage in which it was raised.
            status: What a case that is blamed for it gets.
            fields: More of the event.
        """
        self.emit(
            "raised",
            context=context,
            status=status,
            reason=sentence(error),
            detail=traceback_of(error),
            lasting=is_lasting(error),
            **fields,
        )

    def close(self) -> None:
        """Flush to the disk and close."""
        os.fsync(self._file)
        os.close(self._file)


def require_room(folder: Path) -> None:
    """Make sure that a job folder can still take events: a disk that is full is no technique's failure.

    Raises:
        InfrastructureError: It cannot.
    """
    probe = folder / f"probe-{os.getpid()}"
    try:
        probe.write_bytes(b"p" * ROOM_BYTES)
    except OSError as error:
        raise InfrastructureError(f"{folder}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            probe.unlink()


def _drop_torn_line(file: int) -> None:
    """Cut off what follows the last end of a line."""
    end = size = os.fstat(file).st_size
    while end > 0:
        begin = max(end - CHUNK_BYTES, 0)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            end = begin + found + 1
            break
        end = begin
    if end < size:
        os.ftruncate(file, end)


def _finite(value: Any) -> Any:
    """Replace NaN and infinities by None: the reader decides what an absent number means."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
