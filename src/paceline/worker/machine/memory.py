"""Memory of a process as the kernel sees it: its peak, from outside what is measured."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any


def peak_bytes(pid: int | None = None) -> int | None:
    """Return a process's peak resident set (VmHWM; None: this process); None where the kernel does not tell."""
    try:
        for line in Path(f"/proc/{pid or 'self'}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None


def reset_peak(pid: int | None = None) -> bool:
    """Set a process's peak resident set back to the present one; False where the kernel does not allow it."""
    try:
        Path(f"/proc/{pid or 'self'}/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def find_malloc_trim() -> Callable[[int], Any]:
    """Return the C library's function that gives free memory back to the system, or one that does nothing."""
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return lambda pad: 0
    return found


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Of ``mallopt`` in glibc's ``malloc.h``."""
MOST_KEPT_BYTES = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, as the caching allocators of accelerators do; False without glibc.

    By default a block of some MiB is mapped anew for each allocation, or the end of the heap given back after each
    call, as the heap's history has it. Then a call pays for the pages of its temporaries, and another process with the
    same code does not.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, MOST_KEPT_BYTES))
