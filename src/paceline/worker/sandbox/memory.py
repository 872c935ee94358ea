"""Memory that a sandbox may read and nobody there can change, in which its judge goes on writing."""

from __future__ import annotations

import fcntl
import mmap
import os

_SEAL, _SHRINK, _GROW, _FUTURE_WRITE = 0x1, 0x2, 0x4, 0x10
"""F_SEAL_* of ``linux/fcntl.h``; the last since Linux 5.1: no new writable mapping and no write, old mappings stay."""
_POPULATE = 0x8000
PAGE = 4096


def shared(size: int, *, read_only: bool) -> tuple[int, mmap.mmap]:
    """Return a descriptor to give away, and this process's writable mapping of the same memory.

    Args:
        size: In bytes; nobody can change it.
        read_only: Whoever gets the descriptor can only read.

    Raises:
        OSError: The kernel has no such seals.
    """
    descriptor = os.memfd_create("paceline-shared", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, max(size, PAGE))
        mapped = mmap.mmap(descriptor, max(size, PAGE), flags=mmap.MAP_SHARED | _POPULATE)
        if read_only:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _FUTURE_WRITE)
        keep_size(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, mapped


def keep_size(descriptor: int) -> None:
    """Let nobody change the size of memory, or its seals: reading what was cut off ends a process.

    Raises:
        OSError: The kernel has no such seals, or the memory allows none.
    """
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SHRINK | _GROW | _SEAL)


def mapped_there(descriptor: int, size: int, *, read_only: bool) -> mmap.mmap:
    """Map what was handed over, with all of its pages, so that no timed call pays for one."""
    protection = mmap.PROT_READ if read_only else mmap.PROT_READ | mmap.PROT_WRITE
    return mmap.mmap(descriptor, max(size, PAGE), flags=mmap.MAP_SHARED | _POPULATE, prot=protection)
