"""Counts what a technique may have left running: native threads of this process, and processes of its own."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def num_tasks() -> int:
    """Return the number of this process's threads, native ones included."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - the fastest way, inside a pass
    except OSError:
        return threading.active_count()


def has_children() -> bool:
    """Tell whether this process's first thread has started a process that still lives."""
    try:
        return bool(Path(f"/proc/self/task/{os.getpid()}/children").read_text())
    except OSError:
        return False
