"""The watchdog: a rank that hangs is found, and a machine that stood still is not taken for one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from paceline.worker.communication.trace import TraceWriter
from paceline.worker.launches import watchdog

LIMIT_S = 2.0


class Polls:
    """Stands in for the event that ends the watch: time passes between polls as is written, then the watch ends."""

    def __init__(self, gaps_s: Sequence[float]) -> None:
        self.now_ns = time.monotonic_ns()
        self.gaps_ns = [round(gap * 1e9) for gap in gaps_s]

    def wait(self, timeout: float) -> bool:
        if not self.gaps_ns:
            return True
        self.now_ns += self.gaps_ns.pop(0)
        return False


def hung(folder: Path, monkeypatch: pytest.MonkeyPatch, *gaps_s: float) -> bool:
    """Poll a rank that has fallen silent after each of some gaps; tell whether it was called a hang of two seconds."""
    trace = TraceWriter(folder / "trace-0.bin")
    monkeypatch.setattr(watchdog, "_signal", lambda pid, number: None)
    polls = Polls(gaps_s)
    monkeypatch.setattr(watchdog, "_now_ns", lambda: polls.now_ns)
    watched = watchdog.Watchdog(folder, range(1), lambda context: LIMIT_S)
    monkeypatch.setattr(watched, "_finished", polls)
    trace.context("block|label|time")
    polls.now_ns = time.monotonic_ns()
    watched.run()
    trace.close()
    return watched.hang is not None


def test_a_rank_that_stays_silent_for_too_long_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hung(tmp_path, monkeypatch, *[0.25] * 9)


def test_a_rank_that_is_silent_no_longer_than_its_limit_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not hung(tmp_path, monkeypatch, *[0.25] * 7)


def test_a_gap_that_a_busy_machine_makes_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hung(tmp_path, monkeypatch, 0.25, 0.25, 5.0)


def test_a_machine_that_stood_still_is_not_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hung(tmp_path, monkeypatch, 0.25, 0.25, 300.0, *[0.25] * 7)
    assert hung(tmp_path, monkeypatch, 0.25, 0.25, 300.0, *[0.25] * 9)
