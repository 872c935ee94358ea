"""Watches the ranks of a running process group from outside, and names the one that holds the others up.

Everything it knows comes from the ranks' trace files and from the kernel, so it works for ranks that were stopped, hang
in a system call, or are gone.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.worker.communication.trace import CAPACITY, TraceView, read_trace

_now_ns = time.monotonic_ns
POLL_S = 0.2
STACK_WAIT_S = 0.4
FROZEN_S = 10.0
"""A gap between two polls that is longer says that the machine itself stood still (a suspended virtual machine)."""

STATES = {
    "R": "running",
    "S": "waiting",
    "D": "waiting for the disk",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "Z": "dead",
    "X": "dead",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """What one rank was doing when the group was found stuck or dead."""

    rank: int
    state: str
    context: str
    call: int
    operations: int
    """Since the rank began."""
    call_operations: int
    """Since its present call began. Ranks of a ring do as many in a call, and not in all calls before it."""
    in_operation: bool
    last_operation: str
    silent_s: float
    """Seconds since the rank's last sign of life."""

    def sentence(self) -> str:
        """Say it in one line."""
        return f"rank {self.rank} {self.state}{self.doing}"

    @property
    def doing(self) -> str:
        """Say which operation was its last."""
        return (
            f"; last operation: {self.last_operation}" if self.operations else " before its first operation"
        )


@dataclass(slots=True, kw_only=True)
class Hang:
    """A group one of whose stages did not end within its limit."""

    limit_s: float
    reports: list[RankReport] = field(default_factory=list)


class Watchdog(threading.Thread):
    """Kills the ranks of a group when a stage or a timed call of one of them does not end within its block's limit.

    After the whole machine stood still, limits count from when it went on.

    Args:
        job: The job folder with the trace files.
        ranks: Ranks that live on this node.
        limit_s: Gives the limit for a context (``block|label|stage``).
    """

    def __init__(self, job: Path, ranks: range, limit_s: Callable[[str], float]) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._job = job
        self._ranks = ranks
        self._limit_s = limit_s
        self._finished = threading.Event()
        self._started_ns = _now_ns()
        self._woke_ns = self._started_ns
        self.hang: Hang | None = None

    def run(self) -> None:
        """Poll until stopped or until a hang was found and ended."""
        last_ns = _now_ns()
        while not self._finished.wait(POLL_S):
            now_ns = _now_ns()
            if (now_ns - last_ns) * 1e-9 > FROZEN_S:
                self._woke_ns = now_ns
            last_ns = now_ns
            limit = self._overdue()
            if limit is not None:
                self.hang = Hang(limit_s=limit)
                self._dump_stacks()
                self.hang.reports = inspect(self._job, self._ranks, since_ns=self._started_ns)
                self.kill()
                return

    def stop(self) -> None:
        """End the watch."""
        self._finished.set()
        self.join()

    def _views(self) -> list[TraceView]:
        views = [read_trace(self._job / f"trace-{rank}.bin", last=0) for rank in self._ranks]
        return [v for v in views if v is not None and v.call_began_ns >= self._started_ns]

    def _overdue(self) -> float | None:
        now = _now_ns()
        views = self._views()
        if len(views) < len(self._ranks):
            limit = self._limit_s("-|-|start")
            return limit if (now - self._woke_ns) * 1e-9 > limit else None
        for view in views:
            limit = self._limit_s(view.context)
            if (now - max(view.call_began_ns, self._woke_ns)) * 1e-9 > limit:
                return limit
        return None

    def _dump_stacks(self) -> None:
        for view in self._views():
            if process_state(view.pid) not in ("T", "t", "Z", None):
                _signal(view.pid, signal.SIGUSR1)
        time.sleep(STACK_WAIT_S)

    def kill(self) -> None:
        """End the ranks."""
        for view in self._views():
            _signal(view.pid, signal.SIGKILL)


def inspect(job: Path, ranks: range, *, since_ns: int) -> list[RankReport]:
    """Read every rank's trace and process state; traces from before ``since_ns`` belong to an earlier attempt."""
    reports: list[RankReport] = []
    for rank in ranks:
        view = read_trace(job / f"trace-{rank}.bin", last=CAPACITY)
        if view is None or view.call_began_ns < since_ns:
            reports.append(_absent(rank))
            continue
        state = process_state(view.pid)
        last = view.entries[-1] if view.entries else None
        busy = [e for e in view.entries if e.in_progress]
        shown = busy[0] if busy else last
        words = "none yet"
        if shown is not None:
            peer = f" with rank {shown.peer}" if shown.peer >= 0 else ""
            phase = "in progress" if shown.in_progress else "finished"
            words = f"{shown.kind}{peer}, {shown.size_bytes} B, number {shown.sequence}, {phase}"
        reports.append(
            RankReport(
                rank=rank,
                state=STATES.get(state or "Z", "unknown"),
                context=view.context,
                call=view.num_calls,
                operations=view.num_operations,
                call_operations=sum(e.call == view.num_calls for e in view.entries),
                in_operation=bool(busy),
                last_operation=words,
                silent_s=(_now_ns() - view.call_began_ns) * 1e-9,
            )
        )
    return reports


def guilty(reports: list[RankReport], dead: dict[int, int] | None = None) -> RankReport | None:
    """Name the rank that holds the others up.

    A rank that died first is guilty; else one that was stopped; else one that computes (or sleeps) outside any
    communication while others wait in one; else the one that is furthest behind.

    Args:
        reports: One report for each rank.
        dead: Exit codes of ranks that ended by themselves.
    """
    if not reports:
        return None
    if dead:
        first = [r for r in reports if r.rank in dead]
        if first:
            return min(first, key=lambda r: r.rank)
    for state in ("stopped by a signal", "stopped by a debugger", "dead"):
        found = [r for r in reports if r.state == state]
        if found and len(found) < len(reports):
            return found[0]
    outside = [r for r in reports if not r.in_operation]
    if outside and len(outside) < len(reports):
        return min(outside, key=_progress)
    return min(reports, key=_progress)


def _progress(report: RankReport) -> tuple[int, int]:
    return report.call, report.call_operations


def process_state(pid: int) -> str | None:
    """Return the kernel's one-letter state of a process; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()[0]


def describe(reports: list[RankReport]) -> list[dict[str, Any]]:
    """Return reports as plain data for an event."""
    return [{name: getattr(r, name) for name in RankReport.__dataclass_fields__} for r in reports]


def _absent(rank: int) -> RankReport:
    return RankReport(
        rank=rank,
        state="not started",
        context="-|-|start",
        call=0,
        operations=0,
        call_operations=0,
        in_operation=False,
        last_operation="none yet",
        silent_s=0.0,
    )


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
