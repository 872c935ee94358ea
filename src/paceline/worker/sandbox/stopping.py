"""Stops all threads of a sandboxed process from outside, and finds what else runs in its sandbox."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from paceline.worker.case_error import CaseError

_monotonic = time.monotonic
STOPPED = "TtZX"
"""States of ``proc(5)`` in which a thread computes nothing."""
LIMIT_S = 10.0
QUIET_READS, QUIET_S = 3, 0.00005
"""Equal readings in a row, and the pause between: a thread that is shown as stopped may still leave its core."""
LEAVING_NS = 200_000
"""Processor time that leaving takes at the most, also by a thread that had lost its core and waits for another."""
RAN = "it ran while it was stopped"


def stop(pid: int) -> None:
    """Stop a process; returns once none of its threads can run.

    Raises:
        CaseError: It has ended, or a thread cannot be stopped.
    """
    _signal(pid, signal.SIGSTOP)
    deadline = _monotonic() + LIMIT_S
    while not is_stopped(pid):
        if _monotonic() > deadline:
            raise CaseError("refused", f"a thread of it did not stop within {LIMIT_S:g} s")
    if state(pid, str(pid)) in "ZX":
        raise CaseError("crashed", "its process has ended")


def at_rest_ns(pid: int) -> int:
    """Return the processor time of a process that was stopped, once it is off all cores and the time stands still.

    Raises:
        CaseError: It goes on.
    """
    deadline = _monotonic() + LIMIT_S
    found, same = cpu_ns(pid), 0
    while same < QUIET_READS:
        # Asleep: on a busy machine a thread may wait for this core, to leave it.
        time.sleep(QUIET_S)
        again = cpu_ns(pid)
        found, same = again, same + 1 if again == found else 0
        if _monotonic() > deadline:
            raise CaseError("refused", RAN)
    return found


def require_rest(pid: int, rest_ns: int) -> None:
    """Make sure that nothing of a process has run since it was stopped: a signal may let it go on without its judge.

    Args:
        pid: The process.
        rest_ns: What ``at_rest_ns`` has returned.

    Raises:
        CaseError: It has run, for longer than ``LEAVING_NS``.
    """
    if cpu_ns(pid) - rest_ns > LEAVING_NS and state(pid, str(pid)) not in "ZX":
        raise CaseError("refused", RAN)


def begin_to_stop(pid: int) -> None:
    """Stop a process without waiting for its threads; nothing to do where it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)


def go_on(pid: int) -> None:
    """Let a stopped process go on.

    Raises:
        CaseError: It has ended.
    """
    _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError as error:
        raise CaseError("crashed", "its process has ended") from error


def is_stopped(pid: int) -> bool:
    """Tell whether no thread of a process can run; so it is where the process has ended."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - the fastest way, while a clock runs
    except FileNotFoundError:
        return True
    return all(state(pid, thread) in STOPPED for thread in threads)


def state(pid: int, thread: str) -> str:
    """Return a thread's state, one letter; X where it is gone."""
    try:
        with open(f"/proc/{pid}/task/{thread}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - as above
            return file.read(512).rpartition(b") ")[2][:1].decode() or "X"
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def children(pid: int) -> list[int]:
    """Return the processes that any thread of a process has started and that are not reaped."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += (int(child) for child in path.read_text().split())
        except OSError:
            continue
    return found


def others(init: int, pid: int) -> list[int]:
    """Return all living processes of a sandbox but its first one and the one that computes, however they hide.

    Args:
        init: The sandbox's first process, which adopts whoever has lost its parent.
        pid: The process that computes; it may be the first one.
    """
    found, waiting = [], [*children(init), *children(pid)]
    while waiting:
        child = waiting.pop()
        if child not in (init, pid) and child not in found:
            found.append(child)
            waiting += children(child)
    return [child for child in found if state(child, str(child)) not in "ZX"]


def cpu_ns(pid: int) -> int:
    """Return the processor time that a process has had, all of its threads together, ended ones too.

    It is the kernel's own count (``clock_getcpuclockid(3)``).
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return 0
