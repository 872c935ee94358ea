"""Lets the kernel ask a judge before a process in its sandbox may start another one; threads are nobody's affair.

A second process that lives for a part of a timed call only would be seen by nobody: it computes on a core of its own,
and its time is in no count of the first one's. So a filter that is installed before anything of the candidate's runs
sends each ``fork``, ``vfork`` and ``clone`` without ``CLONE_THREAD`` to the judge (``seccomp_unotify(2)``, Linux 5.8).
It lets compilers start between the passes, and ends whoever starts one while calls are timed. Run as a program, this
module says by its exit code whether the kernel can.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import select
import struct
import sys

SYSCALLS = {"x86_64": 317, "aarch64": 277}
"""Numbers of ``seccomp``."""
FORKS = {"x86_64": (57, 58), "aarch64": ()}
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE_THREAD = 0x10000
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000
_NUMBER, _FIRST_ARGUMENT = 0, 16
_SET_FILTER, _FLAGS = 1, 1 << 0 | 1 << 3 | 1 << 4
"""``SECCOMP_SET_MODE_FILTER``; for all threads (TSYNC, TSYNC_ESRCH), with a descriptor to listen at (NEW_LISTENER)."""
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_QUESTION_BYTES, _GO_ON = 80, 1
"""Of ``struct seccomp_notif``; ``SECCOMP_USER_NOTIF_FLAG_CONTINUE``."""


def program(machine: str) -> bytes:
    """Return the filter's instructions; of numbers the first filter knows, only this machine's own interface is left.

    Args:
        machine: As ``platform.machine`` names it.

    Raises:
        KeyError: There is no table for it.
    """
    code = [(_LOAD, 0, 0, _NUMBER)]
    for number in FORKS[machine]:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ASK)]
    code += [
        (_EQUAL, 0, 3, CLONE[machine]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 1, 0, CLONE_THREAD),
        (_RETURN, 0, 0, _ASK),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def ask_from_now_on() -> int:
    """Let this process, all of its threads and children ask before they start a process; return where to listen.

    Raises:
        OSError: The kernel cannot, or the process could gain privileges by starting a program.
    """
    machine = platform.machine()
    if machine not in SYSCALLS:
        raise OSError(errno.ENOSYS, f"seccomp has no known number on {machine}")
    code = program(machine)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    found = int(libc.syscall(SYSCALLS[machine], _SET_FILTER, _FLAGS, filter_))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


class Starts:
    """The judge's end: processes that a sandbox wants to start.

    Args:
        descriptor: Where ``ask_from_now_on`` listens; closed with this.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """Return what can be waited for; -1 when it was closed."""
        return self._descriptor

    def is_asking(self) -> bool:
        """Tell whether a process waits for an answer, and not only that nobody is left who could ask."""
        polled = select.poll()
        polled.register(self._descriptor, select.POLLIN)
        return any(event & select.POLLIN for _, event in polled.poll(0))

    def allow(self) -> None:
        """Let one go on; whoever has asked may be gone meanwhile, which says nothing."""
        question = bytearray(_QUESTION_BYTES)
        # Nobody asks any more: stopped, ended, or interrupted by a signal, and asks again.
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._descriptor, _RECEIVE, question)
            (number,) = struct.unpack_from("=Q", question)
            fcntl.ioctl(self._descriptor, _SEND, struct.pack("=QqiI", number, 0, 0, _GO_ON))

    def close(self) -> None:
        """Listen no more: starts fail from now on."""
        with contextlib.suppress(OSError):
            if self._descriptor >= 0:
                os.close(self._descriptor)
        self._descriptor = -1


if __name__ == "__main__":
    sys.exit(ask_from_now_on() < 0)
