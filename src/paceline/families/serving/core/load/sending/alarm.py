"""Alarms of an event loop to the microsecond: asyncio's own wait for whole milliseconds of epoll."""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import itertools
import os
import time
from collections.abc import Callable

_clock_ns = time.monotonic_ns

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
_TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarms:
    """Calls functions at instants of the monotonic clock, in the thread of an event loop.

    All alarms share one ``timerfd`` of Linux (timerfd_create(2)), armed for the earliest of them.

    Args:
        loop: Calls them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._library = ctypes.CDLL(None, use_errno=True)
        self._file = self._library.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._armed_ns = 0
        self._calling = False
        loop.add_reader(self._file, self._ring)

    def at(self, instant_ns: int, call: Callable[[], None]) -> None:
        """Call a function at an instant of ``time.monotonic_ns``; at once, but not within this call, if it is past."""
        # The running number breaks ties, since functions cannot be compared, and keeps alarms of one instant in order.
        heapq.heappush(self._heap, (instant_ns, next(self._order), call))
        # While alarms ring the timer is armed once, at the end, and not for each alarm that they set.
        if not self._calling:
            self._arm()

    def close(self) -> None:
        """Forget all alarms."""
        self._heap.clear()
        self._loop.remove_reader(self._file)
        os.close(self._file)

    def _arm(self) -> None:
        if not self._heap:
            return
        earliest_ns = max(self._heap[0][0], 1)  # zero would disarm it
        if earliest_ns == self._armed_ns:
            return
        self._armed_ns = earliest_ns
        value = _Timespec(earliest_ns // 1_000_000_000, earliest_ns % 1_000_000_000)
        spec = _Itimerspec(_Timespec(0, 0), value)
        # An absolute instant: the time from here to the kernel would make a relative one late.
        if self._library.timerfd_settime(self._file, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def _ring(self) -> None:
        try:
            # Reading takes the expiry back; otherwise the loop would see the file as ready for ever.
            os.read(self._file, 8)
        except BlockingIOError:
            return
        self._armed_ns = 0
        self._calling = True
        last = next(
            self._order
        )  # what is set meanwhile waits for the next ring, so that sockets have their turn
        try:
            later = []
            while self._heap and self._heap[0][0] <= _clock_ns():
                item = heapq.heappop(self._heap)
                if item[1] > last:
                    later.append(item)
                    continue
                item[2]()
            for item in later:
                heapq.heappush(self._heap, item)
        finally:
            self._calling = False
            self._arm()
