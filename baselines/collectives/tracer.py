"""Finds the rank or link that stalls or slows a group, from the traces of its communication alone.

Deng et al., "Mycroft: Tracing Dependencies in Collective Communication Towards Reliable LLM Training",
arXiv 2509.03018, 2025 (trigger on missing or slow progress, then walk the dependencies backwards); Dong et al.,
"Boosting Large-scale Parallel Training Efficiency with C4", arXiv 2406.04594, 2024, section on C4D (delays between
pairs of ranks as a matrix; a slow rank is a row, a slow link an entry).

Algorithm, at each poll:
1. Take every rank's finished operations and reduce them to two delays: the gap that a rank spends outside
   communication between two calls, and the time that a message needs once both of its ends have entered it.
2. While nothing is wrong, learn the usual gap of each rank and the usual delay of each pair (medians).
3. Stall: if no rank finished anything for longer than a limit that follows from the usual step, walk from any rank
   that waits to the rank that it waits for, and on, until a rank that waits for nobody (it computes, or sits in a call
   in which nobody joins it): it is guilty. A message that has left its sender and not arrived blames the link.
4. Slow: if a rank's recent gaps are a multiple of the usual and of the other ranks' gaps, it computes slowly; if a
   pair's recent delays are a multiple of the usual and of the other pairs' delays, the link between them is slow.
5. Blame is stated with the rule and the figures that led to it.

Cost: no messages. Reading costs one copy of the new trace entries per poll; writing about a microsecond an operation.

Limits: two faults at once show as the stronger one; a rank that is slow from the first step on is its own normal.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np

from paceline import technique
from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.api.traces import Alarm, TraceFeed

LEARN_OPERATIONS = 200
"""Finished operations of each rank before the tracer has an opinion."""
WINDOW = 64
STALL_FACTOR = 20.0
LEAST_STALL_S = 0.5
SLOW_FACTOR = 3.0
LEAST_SLOW_S = 0.002
"""Delays below this are noise of the scheduler, whatever multiple of the usual they are."""
MEMORY = 4096
"""Finished messages kept until the other end's trace shows them too."""
CONFIRMATIONS = 4
"""Polls in a row that must agree on a slow rank or link: a passing disturbance is not an anomaly."""


@technique(
    name="tracer",
    family="collectives",
    implements=("fault_localisation",),
    summary="walks the dependencies of traced messages to the guilty rank or link",
    paper="mycroft",
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "the ledger's summaries of Mycroft and of C4; the papers themselves were not read",
            "code": "none found",
        },
        "deviations": (
            "The clock is one host's, where the papers synchronise hosts.",
            "The trace holds point-to-point messages, so that a ring's dependencies are visible.",
            "There is no dump of flight data and no restart.",
            "Limits and factors are ours.",
        ),
        "constants": {
            "LEARN_OPERATIONS": {"here": 200, "authors": "not public"},
            "WINDOW": {"here": 64, "authors": "not public"},
            "STALL_FACTOR": {"here": 20.0, "authors": "not public"},
            "LEAST_STALL_S": {"here": 0.5, "authors": "not public"},
            "SLOW_FACTOR": {"here": 3.0, "authors": "not public"},
            "LEAST_SLOW_S": {"here": 0.002, "authors": "not public"},
            "MEMORY": {"here": 4096, "authors": "not public"},
            "CONFIRMATIONS": {"here": 4, "authors": "not public"},
        },
        "checked_by": ("tests/conformance/test_conformance.py::test_a_technique_conforms",),
    },
)
class Tracer:
    """The analysis; ``poll`` is called many times a second."""

    def __init__(self, problem: Problem, feed: TraceFeed) -> None:
        self.feed = feed
        self.size = problem.world_size
        self.recent_gaps: list[deque[float]] = [deque(maxlen=WINDOW) for _ in range(self.size)]
        self.recent_delays: dict[tuple[int, int], deque[float]] = {}
        self.usual_gap = [0.0] * self.size
        self.usual_delay: dict[tuple[int, int], float] = {}
        self.sent: dict[tuple[int, int], deque[int]] = {}
        self.received: dict[tuple[int, int], deque[tuple[int, int]]] = {}
        self.num_sent: dict[tuple[int, int], int] = {}
        self.num_received: dict[tuple[int, int], int] = {}
        self.learned = 0
        self.longest_gap_ns = 0
        self.suspect: tuple[int, ...] | None = None
        self.agreed = 0

    def poll(self) -> Alarm | None:
        """Look at what is new; return an alarm when something is wrong."""
        counts = [self._take(rank) for rank in range(self.size)]
        # Of the rank that has shown least: a usual gap is needed of every rank.
        self.learned += min(counts)
        if self.learned < LEARN_OPERATIONS:
            return None
        # Learned once. A usual that followed the figures would come to include a slow decline.
        if not any(self.usual_gap):
            self._learn()
            return None
        return self._stalled() or self._slow()

    def _take(self, rank: int) -> int:
        """Reduce a rank's new operations to gaps and message delays."""
        entries = self.feed.fresh(rank)
        if len(entries) == 0:
            return 0
        entered, left = entries["entered_ns"].astype(np.int64), entries["left_ns"].astype(np.int64)
        # Against the latest end so far: receives posted ahead end late, and what overlaps them is no gap (negative).
        gaps = (entered[1:] - np.maximum.accumulate(left)[:-1]) * 1e-9
        # Inside a call a gap is the technique's own pause; computation of a step lies between calls.
        between_calls = entries["call"][1:] != entries["call"][:-1]
        self.recent_gaps[rank].extend(gaps[between_calls & (gaps > 0)].tolist())
        sends, receives = entries["kind"] == b"send", entries["kind"] == b"recv"
        for peer in np.unique(entries["peer"][sends]):
            chosen = sends & (entries["peer"] == peer)
            self.sent.setdefault((rank, int(peer)), deque(maxlen=MEMORY)).extend(entered[chosen].tolist())
            self.num_sent[(rank, int(peer))] = self.num_sent.get((rank, int(peer)), 0) + int(chosen.sum())
        for peer in np.unique(entries["peer"][receives]):
            chosen = receives & (entries["peer"] == peer)
            pair = (int(peer), rank)
            arrivals = list(zip(entered[chosen].tolist(), left[chosen].tolist(), strict=True))
            self.received.setdefault(pair, deque(maxlen=MEMORY)).extend(arrivals)
            self.num_received[pair] = self.num_received.get(pair, 0) + len(arrivals)
            self._match(pair)
        return len(entries)

    def _match(self, pair: tuple[int, int]) -> None:
        """Pair the n-th send with the n-th receive; a message's delay begins when both ends have entered it."""
        sent, received = self.sent.get(pair), self.received[pair]
        delays = self.recent_delays.setdefault(pair, deque(maxlen=WINDOW))
        # Messages of a pair match in the order of their start, so counting pairs them; what one
        # trace lacks is left for a later poll.
        while sent and received:
            begun = sent.popleft()
            entered, left = received.popleft()
            delays.append(max(left - max(begun, entered), 0) * 1e-9)

    def _learn(self) -> None:
        self.usual_gap = [float(np.median(g)) if g else 1e-6 for g in self.recent_gaps]
        self.usual_delay = {pair: float(np.median(d)) for pair, d in self.recent_delays.items()}
        # A rough length of a step: the longest computation, then a message of each pair one after another.
        step = max(self.usual_gap) + sum(self.usual_delay.values())
        self.longest_gap_ns = int(max(STALL_FACTOR * step, LEAST_STALL_S) * 1e9)

    def _stalled(self) -> Alarm | None:
        """Speak when no rank has entered or left an operation for too long."""
        latest = 0
        for rank in range(self.size):
            entries = self.feed.newest(rank)
            if len(entries) == 0:
                return None
            latest = max(latest, int(entries["entered_ns"].max()), int(entries["left_ns"].max()))
            # A call that has just begun is progress too.
            latest = max(latest, int(self.feed.header(rank)["call_began_ns"]))
        silence_ns = time.monotonic_ns() - latest
        # A group in which nobody waits for a message is computing, however long that takes.
        if silence_ns < self.longest_gap_ns or not self._waiting():
            return None
        guilty, path = self._walk()
        words = " → ".join(path)
        return Alarm(ranks=guilty, reason=f"no progress for {silence_ns * 1e-9:.2f} s: {words}")

    def _waiting(self) -> bool:
        """Tell whether somebody waits for a message: a silent group between steps waits for nobody."""
        return any(len(self._open(r)) for r in range(self.size))

    def _walk(self) -> tuple[tuple[int, ...], list[str]]:
        """Follow who waits for whom until a rank that waits for nobody, or a message that is on its way."""
        rank = next(r for r in range(self.size) if len(self._open(r)))
        # Any waiting rank will do as a start: who waits for whom leads to the same culprit in a ring.
        path, visited = [], [rank]
        while True:
            waiting = self._open(rank)
            if len(waiting) == 0:
                path.append(f"rank {rank} is outside any communication")
                return (rank,), path
            kind, peer = waiting[0]["kind"].decode(), int(waiting[0]["peer"])
            if peer < 0:
                path.append(f"rank {rank} is in {kind}, where nobody joins it")
                return (rank,), path
            if kind == "recv" and self._on_its_way(peer, rank):
                path.append(f"rank {rank} waits for a message that rank {peer} has sent")
                return (peer, rank), path
            path.append(f"rank {rank} waits for rank {peer} to {'send' if kind == 'recv' else 'receive'}")
            if peer in visited:
                progress = [int(self.feed.header(r)["sequence"]) for r in range(self.size)]
                # A circle has no end to walk to: the rank with the fewest operations holds up the others.
                behind = min(visited, key=lambda r: progress[r])
                path.append(f"a circle, in which rank {behind} is furthest behind")
                return (behind,), path
            visited.append(peer)
            rank = peer

    def _open(self, rank: int) -> Any:
        """Return a rank's operations in progress: receives before sends."""
        entries = self.feed.newest(rank)
        unfinished = entries[entries["left_ns"] == 0]
        # A receive is a data dependency; an open send may merely wait for its receiver, so it is followed second.
        return unfinished[np.argsort(unfinished["kind"] != b"recv", kind="stable")]

    def _on_its_way(self, source: int, rank: int) -> bool:
        """Tell whether the message that ``rank`` waits for has left ``source``: the send of the same number ended."""
        pair = (source, rank)
        return self.num_sent.get(pair, 0) > self.num_received.get(pair, 0)

    def _slow(self) -> Alarm | None:
        """Speak when a rank's gaps or a pair's delays stay a multiple of the usual and of everyone else's."""
        gaps = [self._recent(g) / max(u, 1e-6) for g, u in zip(self.recent_gaps, self.usual_gap, strict=True)]
        rank = int(np.argmax(gaps))
        others = max((g for r, g in enumerate(gaps) if r != rank), default=1.0)
        excess = self._recent(self.recent_gaps[rank]) - self.usual_gap[rank]
        # Against its own past, against the others now (else the whole machine is
        # slow), and above the scheduler's noise.
        if gaps[rank] > SLOW_FACTOR and gaps[rank] > 2 * others and excess > LEAST_SLOW_S:
            return self._confirm((rank,), f"rank {rank} computes {gaps[rank]:.1f} × its usual time")
        delays = {p: self._recent(d) for p, d in self.recent_delays.items() if p in self.usual_delay}
        if delays:
            pair = max(delays, key=lambda p: delays[p])
            rest = max((d for p, d in delays.items() if p != pair), default=0.0)
            # The same three hurdles as for a rank.
            limit = max(SLOW_FACTOR * self.usual_delay[pair], 2 * rest, LEAST_SLOW_S)
            if delays[pair] > limit:
                return self._confirm(pair, f"messages {pair[0]} → {pair[1]} take {delays[pair] * 1e3:.1f} ms")
        self.suspect, self.agreed = None, 0
        return None

    def _confirm(self, suspect: tuple[int, ...], reason: str) -> Alarm | None:
        self.agreed = self.agreed + 1 if suspect == self.suspect else 1
        self.suspect = suspect
        return Alarm(ranks=suspect, reason=reason) if self.agreed >= CONFIRMATIONS else None

    @staticmethod
    def _recent(values: deque[float]) -> float:
        """Median of the newest quarter of the window."""
        # A median of fewer would raise alarms on single outliers.
        if len(values) < WINDOW // 8:
            return 0.0
        return float(np.median(list(values)[-WINDOW // 4 :]))


def cost(problem: Problem) -> None:
    """Return nothing: a detector sends no messages."""
    return
