"""Reading event files: lines of JSON that another process appends to, possibly dying in the middle of one.

Shared by the controller, which follows a run, and the launcher, which finds out what is still to do.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


def read_events(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the complete events from ``offset`` on and the offset after the last complete line.

    A partial last line (the writer was killed, or is still writing) is left for the next call; a complete line that is
    not JSON becomes an ``unreadable`` event, so that nothing disappears silently.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    end = data.rfind(b"\n") + 1
    events: list[dict[str, Any]] = []
    for line in data[:end].splitlines():
        try:
            event = json.loads(line, parse_constant=_number, parse_float=_number)
        except ValueError:
            event = {"event": "unreadable", "text": line[:200].decode("utf-8", "replace")}
        if isinstance(event, dict):
            events.append(event)
    return events, offset + end


def _number(text: str) -> float:
    """Read a number that a record can hold; NaN, infinities and what overflows make the line unreadable."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value
