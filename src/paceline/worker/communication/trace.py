"""Each rank's recent communication operations, in a memory-mapped ring that outlives the rank.

A rank that was killed, stopped or hangs cannot tell what it was doing; the file can. The launcher reads it to name the
rank that holds everyone up and its last operation, and techniques for anomaly detection read it live.

Layout: a 128-byte header (magic, version, capacity, next sequence number, number and begin of the current call, and the
block, technique and stage), then ``capacity`` entries of 64 bytes. Writing an entry takes about a microsecond.

Readers look at any moment. What they judge by (sequence, call, its begin, the end of an operation) is written as whole
aligned words: ``struct.pack_into`` clears its bytes before it fills them, and a watchdog that looked in between took a
rank for absent.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"PLTRACE1"
CAPACITY = 2048
_HEADER = struct.Struct("<8sIIQQQi76s")
_WORD_SIZE = 8
_SEQUENCE_WORD, _CALL_WORD, _BEGAN_WORD = 2, 3, 4
_CONTEXT_OFFSET = 44
_ENTRY = struct.Struct("<QQQQhhI16s")
_ENTRY_SIZE = 64
_LEAVE_OFFSET = 16
HEADER_SIZE = 128
HEADER_FIELDS: list[tuple[str, str]] = [
    ("magic", "S8"),
    ("version", "<u4"),
    ("capacity", "<u4"),
    ("sequence", "<u8"),
    ("call", "<u8"),
    ("call_began_ns", "<u8"),
    ("pid", "<i4"),
    ("context", "S76"),
]
ENTRY_FIELDS: list[tuple[str, str]] = [
    ("sequence", "<u8"),
    ("entered_ns", "<u8"),
    ("left_ns", "<u8"),
    ("size_bytes", "<u8"),
    ("peer", "<i2"),
    ("reserved", "<i2"),
    ("call", "<u4"),
    ("kind", "S16"),
    ("padding", "S8"),
]
"""The same layouts as numpy field lists, for readers that watch live."""
_CONTEXT_SIZE = 76

_now_ns = time.monotonic_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEntry:
    """One communication operation of one rank."""

    sequence: int
    kind: str
    """send, recv, or the name of a backend collective."""
    peer: int
    """The other rank, or -1 for a collective."""
    size_bytes: int
    call: int
    """How many technique calls this rank had begun."""
    entered_ns: int
    """Host monotonic clock."""
    left_ns: int
    """Zero while the operation is still in progress."""

    @property
    def in_progress(self) -> bool:
        """True when the rank entered the operation and has not left it."""
        return self.left_ns == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """What a trace file says at one moment."""

    pid: int
    num_operations: int
    num_calls: int
    """Technique calls begun, counting every change of context as one."""
    call_began_ns: int
    """Host monotonic clock when the last call began: the rank's sign of life."""
    context: str
    """``block|technique|stage`` as last announced by the rank."""
    entries: tuple[TraceEntry, ...]
    """The most recent operations, oldest first."""


class TraceWriter:
    """Writer of one rank's trace; entries are overwritten in a ring."""

    def __init__(self, path: Path, *, capacity: int = CAPACITY) -> None:
        self.path = path
        size = HEADER_SIZE + capacity * _ENTRY_SIZE
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, size)  # a hole on a full disk would end the rank by SIGBUS
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._words = memoryview(self._map).cast("Q")
        self._capacity = capacity
        self._sequence = 0
        self._call = 0
        self._pid = os.getpid()
        self.last_context = ""
        """What was last announced."""
        _HEADER.pack_into(self._map, 0, MAGIC, 1, capacity, 0, 0, _now_ns(), os.getpid(), b"")

    def context(self, text: str) -> None:
        """Announce which block, technique and stage the rank is in."""
        self._call += 1
        self.last_context = text
        encoded = text.encode()[:_CONTEXT_SIZE].ljust(_CONTEXT_SIZE, b"\0")
        self._words[_CALL_WORD], self._words[_BEGAN_WORD] = self._call, _now_ns()
        self._map[_CONTEXT_OFFSET : _CONTEXT_OFFSET + _CONTEXT_SIZE] = encoded

    def begin_call(self) -> None:
        """Note that a call of the technique begins."""
        self._call += 1
        self._words[_CALL_WORD], self._words[_BEGAN_WORD] = self._call, _now_ns()

    def enter(self, kind: str, peer: int, size_bytes: int) -> int:
        """Note that an operation begins; the result is passed to ``leave``."""
        slot = self._sequence % self._capacity
        offset = HEADER_SIZE + slot * _ENTRY_SIZE
        self._map[offset : offset + _ENTRY.size] = _ENTRY.pack(
            self._sequence,
            _now_ns(),
            0,
            size_bytes,
            peer,
            0,
            self._call & 0xFFFFFFFF,
            kind.encode()[:16],
        )
        self._sequence += 1
        self._words[_SEQUENCE_WORD] = self._sequence
        return offset

    def leave(self, offset: int) -> None:
        """Note that the operation that began at ``offset`` has finished."""
        self._words[(offset + _LEAVE_OFFSET) // _WORD_SIZE] = _now_ns()

    def close(self) -> None:
        """Unmap the file; it stays on disk."""
        self._words.release()
        self._map.close()


def read_trace(path: Path, *, last: int = 64) -> TraceView | None:
    """Read the most recent operations of a rank, alive or dead; None when there is no readable trace."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) < HEADER_SIZE or data[:8] != MAGIC:
        return None
    _, _, capacity, sequence, call, began, pid, context = _HEADER.unpack_from(data, 0)
    entries: list[TraceEntry] = []
    for number in range(max(0, sequence - min(last, capacity)), sequence):
        offset = HEADER_SIZE + (number % capacity) * _ENTRY_SIZE
        if offset + _ENTRY_SIZE > len(data):
            break
        found, entered, left, size, peer, _, at_call, kind = _ENTRY.unpack_from(data, offset)
        if found != number:
            continue
        entries.append(
            TraceEntry(
                sequence=number,
                kind=kind.rstrip(b"\0").decode("ascii", "replace"),
                peer=peer,
                size_bytes=size,
                call=at_call,
                entered_ns=entered,
                left_ns=left,
            )
        )
    return TraceView(
        pid=pid,
        num_operations=sequence,
        num_calls=call,
        call_began_ns=began,
        context=context.rstrip(b"\0").decode("utf-8", "replace"),
        entries=tuple(entries),
    )
