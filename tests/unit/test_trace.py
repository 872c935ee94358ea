"""A rank's trace can be read at any moment: what readers judge by is never half written."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from figures import Figures

from paceline.worker.communication.trace import TraceWriter, read_trace

SECONDS = 2.0
MIN_READS = 1000
PATIENCE_S = 30.0
"""A reader that shares its core with the writer may look between two instructions late."""
WRITER = """
import struct, sys, time
from pathlib import Path
from paceline.worker.communication.trace import TraceWriter

trace = TraceWriter(Path(sys.argv[1]), capacity=8)
trace.context("block|label|time")
pair = struct.Struct("<QQ")

def in_parts():
    trace._call += 1
    pair.pack_into(trace._map, 24, trace._call, time.monotonic_ns())

begin = in_parts if sys.argv[2] == "parts" else trace.begin_call
print("ready", flush=True)
while True:
    begin()
    trace.leave(trace.enter("send", 1, 64))
"""


def lapses(path: Path, how: str, *, until_found: bool = False) -> int:
    """Read the trace of a busy process; return how often the begin of its call went back.

    Args:
        path: The trace.
        how: How its writer writes: ``whole`` words, or in ``parts``.
        until_found: Read until that happens, at most ``PATIENCE_S``, and not for ``SECONDS``.
    """
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), how], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        found, last, reads = 0, 0, 0
        until = time.monotonic() + (PATIENCE_S if until_found else SECONDS)
        while time.monotonic() < until and not (until_found and found and reads > MIN_READS):
            view = read_trace(path, last=0)
            assert view is not None
            assert view.context == "block|label|time"
            found += view.call_began_ns < last
            last = max(last, view.call_began_ns)
            reads += 1
        writer.kill()
    assert reads > MIN_READS
    return found


@pytest.mark.measured
def test_the_begin_of_a_call_is_never_half_written(tmp_path: Path, figure: Figures) -> None:
    figure("calls read half written", lapses(tmp_path / "trace-0.bin", "whole"), unit="calls", most=0)


@pytest.mark.measured
def test_a_word_written_in_parts_is_seen_half_written(tmp_path: Path, figure: Figures) -> None:
    found = lapses(tmp_path / "trace-0.bin", "parts", until_found=True)
    figure("words read half written", found, unit="words", least=1)


class Words:
    """Stands before what a trace is written through, and notes which bytes are written at once."""

    def __init__(self, inner: Any, width: int) -> None:
        self.inner, self.width = inner, width
        self.written: list[tuple[int, int]] = []

    def __setitem__(self, place: int | slice, value: Any) -> None:
        first, last = (place.start, place.stop) if isinstance(place, slice) else (place, place + 1)
        self.written.append((first * self.width, last * self.width))
        self.inner[place] = value


def test_what_readers_judge_by_is_written_a_whole_word_at_once(tmp_path: Path) -> None:
    """The sequence, the number of the call and its begin; and when an operation was left."""
    trace = TraceWriter(tmp_path / "trace-0.bin", capacity=2)
    words, rest = trace._words, trace._map
    assert words.itemsize == 8
    trace._words, trace._map = Words(words, 8), Words(rest, 1)  # type: ignore[assignment]
    trace.context("block|label|time")
    trace.begin_call()
    for _ in range(3):
        trace.leave(trace.enter("send", 1, 64))
    header = {(16, 24), (24, 32), (32, 40)}
    written = set(trace._words.written)  # type: ignore[attr-defined]
    assert written > header
    assert len(written - header) == 2  # of the two entries of the ring
    assert all(first >= 40 for first, _ in trace._map.written)  # type: ignore[attr-defined]
    words.release()
    rest.close()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    trace = TraceWriter(tmp_path / "trace-0.bin", capacity=4)
    trace.context("block|a label that is rather long|time")
    trace.context("b|l|gate")
    for number in range(6):
        trace.begin_call()
        offset = trace.enter("send", 3, 100 + number)
        if number < 5:
            trace.leave(offset)
    view = read_trace(tmp_path / "trace-0.bin")
    assert view is not None
    assert view.context == "b|l|gate"
    assert (view.num_operations, view.num_calls) == (6, 8)
    assert [e.size_bytes for e in view.entries] == [102, 103, 104, 105]
    assert [e.in_progress for e in view.entries] == [False, False, False, True]
    assert {(e.kind, e.peer) for e in view.entries} == {("send", 3)}
    trace.close()


@pytest.mark.parametrize("content", [b"", b"PLTRACE1", b"x" * 256])
def test_what_is_no_trace_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace-0.bin"
    path.write_bytes(content)
    assert read_trace(path) is None
