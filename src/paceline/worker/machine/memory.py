"""Memory of a process as the kernel sees it: its peak, from outside what is measured."""

from __future__ import annotations

import ctypes
from pathlib import Path


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


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
"""Of ``mallopt`` in glibc's ``malloc.h``."""
MOST_KEPT_BYTES = 2**31 - 1
LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES = 1 << 16, 1 << 32
SMALL_BLOCKS = (
    *((size, 48) for size in range(24, 1032, 16)),
    *((int(1024 * 1.25**step), 8) for step in range(19)),
)
"""Sizes in bytes below that, and how many of each are kept ready: 4 MB, most of which is not touched."""
IS_MMAPPED = 2
"""The bit, in the size that glibc writes before a block, of a block that is a mapping of its own."""
USUAL_MAPPINGS, MOST_DYNAMIC_BYTES = 1 << 16, 32 << 20
"""How many blocks glibc maps by themselves, and up to which size it learns to keep blocks in the heap."""


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, as the caching allocators of accelerators do; False without glibc.

    By default a block of some MiB is mapped anew for each allocation, or the end of the heap given back after each
    call, as the heap's history has it. Then a call pays for the pages of its temporaries, and another process with the
    same code does not.
    """
    library = _glibc()
    if library is None:
        return False
    return bool(library.mallopt(M_MMAP_MAX, 0)) and bool(library.mallopt(M_TRIM_THRESHOLD, MOST_KEPT_BYTES))


class FreeBlocks:
    """The free blocks of this process's heap, which can be taken so that its history does not show in a peak.

    A temporary of some MiB fits into a hole that an earlier one left, or does not, as small blocks happen to lie
    between: the same call touched 2.1 MB in one process and 3.9 or 6.2 MB in others. With every hole taken, a call's
    temporaries lie at the end of the heap, one behind the other. Small blocks would be cut from what a large one left,
    which then is too small for the next: some of each small size are kept ready. Blocks that are taken are not touched:
    they cost nothing of what is resident.
    """

    def __init__(self) -> None:
        self._library = _glibc()
        self._taken: list[int] = []

    def take(self) -> int:
        """Take every free block of 64 KiB and more, and return how many they are; 0 without glibc.

        From now on the process keeps what it frees, as after ``keep_freed_memory``.
        """
        library = self._library
        if library is None:
            return 0
        self.give_back()
        library.malloc_trim(0)
        # A block that is mapped by itself says that the heap has no free one of that size.
        library.mallopt(M_MMAP_MAX, USUAL_MAPPINGS)
        library.mallopt(M_MMAP_THRESHOLD, LEAST_BLOCK_BYTES)
        size = MOST_BLOCK_BYTES
        while size >= LEAST_BLOCK_BYTES:
            while (block := library.malloc(size)) is not None:
                if ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value & IS_MMAPPED:
                    library.free(block)
                    break
                self._taken.append(block)
            size //= 2
        num_blocks = len(self._taken)
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, MOST_KEPT_BYTES)
        self._keep_small_ones_ready(library)
        library.malloc_trim(0)
        return num_blocks

    def _keep_small_ones_ready(self, library: ctypes.CDLL) -> None:
        ready: list[int] = []
        for size, count in SMALL_BLOCKS:
            blocks = [library.malloc(size) for _ in range(2 * count)]
            # Every second one stays, so that two free ones are not joined.
            ready += blocks[::2]
            self._taken += blocks[1::2]
        for block in ready:
            library.free(block)
        # A larger one than all of them sorts them by size.
        library.free(library.malloc(LEAST_BLOCK_BYTES))

    def give_back(self) -> None:
        """Free the blocks that were taken."""
        while self._library is not None and self._taken:
            self._library.free(self._taken.pop())

    def end(self) -> None:
        """Free them, and let the allocator go on as it does in a process that has freed mappings of 32 MiB."""
        self.give_back()
        if self._library is not None:
            self._library.mallopt(M_MMAP_MAX, USUAL_MAPPINGS)
            self._library.mallopt(M_MMAP_THRESHOLD, MOST_DYNAMIC_BYTES)
            self._library.mallopt(M_TRIM_THRESHOLD, 2 * MOST_DYNAMIC_BYTES)


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


PROBE_BYTES = 1 << 18


def _glibc() -> ctypes.CDLL | None:
    """Return the C library of this process where it is glibc and blocks come from it; None for another allocator."""
    try:
        library, own = ctypes.CDLL(None), ctypes.CDLL("libc.so.6")
        library.gnu_get_libc_version, library.mallopt, library.malloc_trim, own.mallinfo  # noqa: B018 - raises
    except (OSError, AttributeError):
        return None
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    own.mallinfo.restype, own.mallinfo.argtypes = _Mallinfo, []
    # One that was loaded before it, such as jemalloc, writes no size in front of a block.
    before = own.mallinfo()
    block = library.malloc(PROBE_BYTES)
    after = own.mallinfo()
    library.free(block)
    grown = after.uordblks - before.uordblks + after.hblkhd - before.hblkhd
    return library if grown >= PROBE_BYTES else None
