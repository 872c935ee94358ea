"""Which test runs in which process, written to a folder for whoever has to say what hung."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER_VARIABLE = "PACELINE_TESTS_UNDER_WAY"


def begin(nodeid: str) -> None:
    """Note that this process runs a test."""
    _write(nodeid)


def end() -> None:
    """Note that this process has ended its test."""
    _write("")


def _write(text: str) -> None:
    if folder := os.environ.get(FOLDER_VARIABLE):
        Path(folder, str(os.getpid())).write_text(text)


def named(folder: Path) -> dict[int, str]:
    """Return the test that each process is at."""
    found = {int(path.name): path.read_text() for path in folder.iterdir()}
    return {pid: nodeid for pid, nodeid in found.items() if nodeid}


def latest_s(folder: Path) -> float | None:
    """Return when a test last began or ended, in seconds of the epoch; None where none has."""
    return max((path.stat().st_mtime for path in folder.iterdir()), default=None)
