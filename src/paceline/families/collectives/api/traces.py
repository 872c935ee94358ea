"""Live traces of all ranks for detectors, and the alarm that they raise.

A feed maps the ranks' trace files and hands out what is new as numpy arrays, so that watching a group costs little of
the machine that the group runs on.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from paceline.worker.communication.trace import ENTRY_FIELDS, HEADER_FIELDS, HEADER_SIZE

ENTRY = np.dtype(ENTRY_FIELDS)
HEADER = np.dtype(HEADER_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """What a detector has to say when something is wrong."""

    ranks: tuple[int, ...]
    """The ranks that it blames; both ends for a link; empty when it cannot tell."""
    reason: str
    """Which rule spoke, and on which figures."""


class TraceFeed:
    """Reads all ranks' traces while they are written.

    Entry fields: ``sequence``, ``entered_ns``, ``left_ns`` (0 while in progress), ``size_bytes``, ``peer``, ``call``,
    ``kind`` (bytes: ``send``, ``recv`` or a collective's name). All times are of the host's monotonic clock.
    """

    def __init__(self, paths: list[Path]) -> None:
        self._maps: list[mmap.mmap] = []
        for path in paths:
            with path.open("rb") as file:
                self._maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self.num_ranks = len(paths)
        self._next = [0] * len(paths)

    def header(self, rank: int) -> Any:
        """Return a copy of a rank's header: ``sequence`` (operations so far), ``call``, ``call_began_ns``."""
        # A copy: the rank goes on writing into the mapped memory.
        return np.frombuffer(self._maps[rank], HEADER, count=1)[0].copy()

    def newest(self, rank: int, count: int = 8) -> Any:
        """Return a rank's most recent operations, at most ``count``, oldest first: a copy of dtype ``ENTRY``."""
        header = self.header(rank)
        sequence = int(header["sequence"])
        return self._entries(rank, max(0, sequence - count), sequence, int(header["capacity"]))

    def fresh(self, rank: int) -> Any:
        """Return a rank's finished operations since the last call, as ``newest``; at most what the ring holds."""
        header = self.header(rank)
        sequence, capacity = int(header["sequence"]), int(header["capacity"])
        # One entry less than the ring holds: the oldest may be overwritten while it is being read.
        first = max(self._next[rank], sequence - capacity + 1, 0)
        entries = self._entries(rank, first, sequence, capacity)
        unfinished = np.flatnonzero(entries["left_ns"] == 0)
        if unfinished.size:
            # Later ones wait with the unfinished one, so that every operation is handed out
            # once, in order and with its end.
            entries = entries[: int(unfinished[0])]
        self._next[rank] = first + len(entries)
        return entries

    def _entries(self, rank: int, first: int, stop: int, capacity: int) -> Any:
        table = np.frombuffer(self._maps[rank], ENTRY, count=capacity, offset=HEADER_SIZE)
        return table[np.arange(first, stop) % capacity].copy()

    def close(self) -> None:
        """Unmap the files."""
        for mapped in self._maps:
            mapped.close()


class Detector(Protocol):
    """A technique of ``fault_localisation``: ``T(problem, feed, **options)``, polled on rank 0."""

    def poll(self) -> Alarm | None:
        """Read what is new in the feed; return an alarm, or None where nothing seems wrong.

        It is called about every 50 ms, before the fault, too: an alarm then counts as a false one.
        """
