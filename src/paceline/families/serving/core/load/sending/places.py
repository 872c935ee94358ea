"""Which of the calls that are due may be sent: places of a closed loop, or the cap of an open one.

A closed loop's place belongs to one session (or workflow) from its first call to the end of its last, as to one user.
Were places given to single calls, a turn would wait for those of other sessions, and that wait, which is the client's
own, would stand in the server's time to first token.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from paceline.families.serving.core.load.calls import Call, Workload


class Places:
    """The places of one process's part of a run.

    Args:
        workload: The run's calls and how many may be under way.
        calls: Those of this process, whole sessions.
        part: Which process this is.
        parts: How many there are.
    """

    def __init__(self, workload: Workload, calls: Iterable[Call], *, part: int = 0, parts: int = 1) -> None:
        self._closed = workload.concurrency is not None
        self._most = workload.places(part, parts, workload.concurrency or workload.cap)
        self._roots = workload.roots
        self._due: deque[int] = deque()
        self._taken = 0
        self._beginnings: dict[int, list[int]] = {}
        self._unended: Counter[int] = Counter()
        """Calls of each session."""
        if self._closed:
            for call in calls:
                root = self._roots[call.number]
                self._unended[root] += 1
                if not call.after:
                    self._beginnings.setdefault(root, []).append(call.number)
        self._outside: deque[int] = deque(self._beginnings)

    def add(self, number: int) -> None:
        """Take note of a call that has become due."""
        self._due.append(number)

    def next(self) -> int | None:
        """Return the next call that is to be sent; None where there is none, or no place."""
        free = self._most is None or self._taken < self._most
        if not self._closed:
            if not self._due or not free:
                return None
            self._taken += 1
        elif not self._due:
            if not self._outside or not free:
                return None
            # All calls that it begins with: one of them may be what another's end is waited for with.
            self._due.extend(self._beginnings.pop(self._outside.popleft()))
            self._taken += 1
        return self._due.popleft()

    def ended(self, number: int, *, sent: bool) -> None:
        """Take note of a call that is over, be it that it was never sent."""
        if not self._closed:
            self._taken -= sent
            return
        root = self._roots[number]
        self._unended[root] -= 1
        if not self._unended[root]:
            self._taken -= 1
