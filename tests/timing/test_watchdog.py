"""The watchdog: a rank that hangs is found, and a machine that stood still is not taken for one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from paceline.worker import watchdog
from paceline.worker.trace import TraceWriter


def hung(folder: Path, monkeypatch: pytest.MonkeyPatch, *, frozen_s: float) -> bool:
    """Watch a silent rank whose clock jumps by some seconds; tell whether it was called a hang of two seconds."""
    monkeypatch.setattr(watchdog, "_signal", lambda pid, number: None)
    jump = {"ns": 0}
    monkeypatch.setattr(watchdog, "_now_ns", lambda: time.monotonic_ns() + jump["ns"])
    trace = TraceWriter(folder / "trace-0.bin")
    watched = watchdog.Watchdog(folder, range(1), lambda context: 2.0)
    trace.context("block|label|time")
    watched.start()
    time.sleep(0.6)
    jump["ns"] = round(frozen_s * 1e9)
    time.sleep(1.0)
    watched.stop()
    trace.close()
    return watched.hang is not None


def test_a_rank_that_stays_silent_for_too_long_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hung(tmp_path, monkeypatch, frozen_s=5.0)


def test_a_machine_that_stood_still_is_not_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hung(tmp_path, monkeypatch, frozen_s=300.0)
