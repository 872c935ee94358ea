"""Lets the kernel stop another process once it has had so much more processor time, however busy the machine is.

A judge that stops a process at a moment of its own clock needs a core at that moment, and the process one before it. A
software counter of ``perf_event_open(2)`` runs while the process runs, and sends the signal from its timer interrupt.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import signal
import struct

SYSCALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
"""Numbers of ``perf_event_open``."""
SOFTWARE, TASK_CLOCK = 1, 1
ATTRIBUTE_BYTES = 128
DISABLED, EXCLUDE_KERNEL = 1 << 0, 1 << 5
REFRESH = 0x2402
"""``PERF_EVENT_IOC_REFRESH``: enabled for so many overflows."""
SET_SIGNAL = 10
"""``F_SETSIG``, which Python does not name."""

_libc = ctypes.CDLL(None, use_errno=True)


class ProcessorTimer:
    """Stops a process by SIGSTOP once; close it before the process is let go on.

    Args:
        pid: The process that is stopped.
        after_ns: Processor time from now.
        thread: Whose time counts; the first one of the process without it.

    Raises:
        OSError: This kernel, or what the caller may do, does not allow it.
    """

    def __init__(self, pid: int, after_ns: int, *, thread: int | None = None) -> None:
        self._descriptor = _opened(pid if thread is None else thread, max(after_ns, 1))
        try:
            fcntl.fcntl(self._descriptor, SET_SIGNAL, signal.SIGSTOP)
            fcntl.fcntl(self._descriptor, fcntl.F_SETOWN, pid)
            flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
            if _libc.ioctl(self._descriptor, REFRESH, 1):
                raise _error()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Stop nothing any more."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def of_each_thread(pid: int, after_ns: int) -> contextlib.ExitStack:
    """Return timers of all threads that a process has now, each for its own time; closed together.

    Raises:
        OSError: This kernel, or what the caller may do, does not allow it.
    """
    with contextlib.ExitStack() as timers:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names alone
            # One that has ended meanwhile computes nothing.
            with contextlib.suppress(ProcessLookupError):
                timers.enter_context(contextlib.closing(ProcessorTimer(pid, after_ns, thread=int(thread))))
        return timers.pop_all()


def _opened(pid: int, after_ns: int) -> int:
    number = SYSCALLS.get(platform.machine())
    if number is None or platform.system() != "Linux":
        raise OSError(f"perf_event_open has no known number on {platform.machine()}")
    # Who may not count the kernel's time is stopped in the process's own code alone.
    for flags in (DISABLED, DISABLED | EXCLUDE_KERNEL):
        attribute = bytearray(ATTRIBUTE_BYTES)
        struct.pack_into(
            "=IIQQQQQI", attribute, 0, SOFTWARE, ATTRIBUTE_BYTES, TASK_CLOCK, after_ns, 0, 0, flags, 1
        )
        buffer = (ctypes.c_char * ATTRIBUTE_BYTES).from_buffer(attribute)
        descriptor = int(_libc.syscall(number, buffer, pid, -1, -1, 0))
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
            return descriptor
    raise _error()


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
