"""A watchdog with a fixed timeout: the baseline of dependency tracing.

Algorithm: note when any rank last began an operation; when that is longer ago than the timeout, raise an alarm. That is
what a process group's own timeout and a log watcher do. It names nobody, since every rank looks the same from outside.

Cost: one header read per rank and poll.
Limits: blind to everything that is slow instead of stuck.
"""

from __future__ import annotations

import time

from paceline import technique
from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.api.traces import Alarm, TraceFeed


@technique(
    name="timeout-watchdog",
    family="collectives",
    implements=("fault_localisation",),
    summary="an alarm when nothing has moved for a fixed time; names nobody",
    properties={"names_ranks": False},
)
class TimeoutWatchdog:
    """The watchdog; ``poll`` is called many times a second."""

    def __init__(self, problem: Problem, feed: TraceFeed, *, timeout_s: float = 5.0) -> None:
        self.feed = feed
        self.size = problem.world_size
        self.timeout_s = timeout_s
        self.operations = -1
        self.since = time.monotonic()

    def poll(self) -> Alarm | None:
        """Raise an alarm when the number of operations has stood still for longer than the timeout."""
        # Over all ranks: any progress anywhere resets the clock, so a group that is merely slow raises no alarm.
        operations = sum(int(self.feed.header(r)["sequence"]) for r in range(self.size))
        now = time.monotonic()
        if operations != self.operations:
            self.operations, self.since = operations, now
            return None
        if now - self.since < self.timeout_s:
            return None
        return Alarm(ranks=(), reason=f"no operation for {now - self.since:.1f} s")


def cost(problem: Problem) -> None:
    """Return nothing: a detector sends no messages."""
    return
