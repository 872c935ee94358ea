"""What a run leaves behind among the machine's processes: nothing, once it has ended."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

GONE_WITHIN_S = 10


def processes_of(folder: Path) -> list[str]:
    """Return the processes that name a folder, or live in it: launchers, fork servers, ranks and what they started."""
    found = []
    for process in psutil.process_iter(["pid", "name", "cmdline", "cwd", "status"]):
        about = process.info
        line = " ".join(about["cmdline"] or [])
        lives = Path(about["cwd"] or "/").is_relative_to(folder)
        if (str(folder) in line or lives) and process.pid != os.getpid():
            found.append(f"{process.pid} {about['status']} {about['name']} {line}")
    return found


def assert_nothing_left(folder: Path) -> None:
    """Wait a little for what ends."""
    deadline_s = time.monotonic() + GONE_WITHIN_S
    while (left := processes_of(folder)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert not left, "\n".join(left)
