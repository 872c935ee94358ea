"""Reading event files: lines of JSON that another process appends to, possibly dying in the middle of one.

Shared by the controller, which follows a run, and the launcher, which finds out what is still to do.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from paceline.base.files.plain_data import MAX_DEPTH, loads

ROOM = 4
"""Levels that a line of a record puts around parts of an event."""
MOST_BYTES = 256 << 20
"""Events that are read at once; no rank writes as many between two looks."""


def read_events(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the complete events from ``offset`` on and the offset after the last complete line.

    A partial last line (the writer was killed, or is still writing) is left for the next call; a complete line that is
    not JSON becomes an ``unreadable`` event, so that nothing disappears silently.
    """
    try:
        # What writes here may be hostile: a link leads elsewhere, and a pipe would keep its reader waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return [], offset
    except OSError as error:
        return [_refused(path, error.strerror or str(error))], offset
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return [_refused(path, "not a plain file")], offset
        if status.st_size - offset > MOST_BYTES:
            return [_refused(path, f"more than {MOST_BYTES} B at once")], status.st_size
        file.seek(offset)
        data = file.read(MOST_BYTES)
    end = data.rfind(b"\n") + 1
    events: list[dict[str, Any]] = []
    for line in data[:end].splitlines():
        try:
            event = loads(line, depth=MAX_DEPTH - ROOM)
        except ValueError:
            event = {"event": "unreadable", "text": line[:200].decode("utf-8", "replace")}
        if isinstance(event, dict):
            events.append(event)
    return events, offset + end


def _refused(path: Path, why: str) -> dict[str, Any]:
    return {"event": "unreadable", "text": f"{path.name}: {why}"}
