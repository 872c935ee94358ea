"""Event files: a rank that dies, or a disk that fills, costs the line that was being written and no other."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from paceline.base.files.events import read_events
from paceline.worker.events import CHUNK_BYTES, EventLog


def log(path: Path) -> EventLog:
    return EventLog(path, launch=0, attempt=0, rank=0)


@pytest.mark.parametrize("length", [1, 200, CHUNK_BYTES, 3 * CHUNK_BYTES + 1])
@pytest.mark.parametrize("lines", [0, 2])
def test_the_first_event_after_a_torn_line_is_readable(tmp_path: Path, lines: int, length: int) -> None:
    path = tmp_path / "events-0.jsonl"
    first = log(path)
    for number in range(lines):
        first.emit("before", number=number)
    first.close()
    with path.open("ab") as file:
        file.write((b'{"event":"torn","text":"' + b"x" * length)[:length])
    second = log(path)
    second.emit("after")
    second.close()
    events, end = read_events(path)
    assert [e["event"] for e in events] == ["before"] * lines + ["after"]
    assert end == path.stat().st_size


def test_a_line_without_room_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "events-0.jsonl"
    events = log(path)
    events.emit("before")
    size = path.stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
        with pytest.raises(OSError, match="File too large"):
            events.emit("too long", text="x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert path.stat().st_size == size
    events.emit("after")
    assert [e["event"] for e in read_events(path)[0]] == ["before", "after"]
