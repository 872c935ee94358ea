"""What a pass costs that computes nothing: the same messages, memory and stops, measured in turn with candidates."""

from __future__ import annotations

import math
from collections import deque

from paceline.worker.timing.interleaved import MEDIAN_Z, median

RECENT = 15
"""Empty passes whose median is subtracted: the machine's present state, and not that of a minute ago."""
LEAST = 9
"""Empty passes before the first candidate's."""
LEAST_RESOLUTION_NS = 100.0


class Handover:
    """Empty passes of a block, in nanoseconds."""

    def __init__(self) -> None:
        self.wall_ns: list[int] = []
        self._recent: deque[tuple[int, int]] = deque(maxlen=RECENT)

    def add(self, wall_ns: int, cpu_ns: int) -> None:
        """Note an empty pass: by the judge's clock, and the processor time of its threads."""
        self.wall_ns.append(wall_ns)
        self._recent.append((wall_ns, cpu_ns))

    def of_a_pass(self, wall_ns: int, cpu_ns: int, threads: int) -> float:
        """Return the nanoseconds that a candidate's pass itself took.

        It is the time by the judge's clock without the handover, or the processor time without the handover's divided
        by the threads that the point gives, whichever is longer: whoever computes on more threads gains nothing. Never
        less than what the handover is known to.
        """
        handover_ns, handover_cpu_ns = self.recent()
        by_threads = (cpu_ns - handover_cpu_ns) / threads
        return max(wall_ns - handover_ns, by_threads, self.resolution_ns())

    def recent(self) -> tuple[float, float]:
        """Return the medians of the latest empty passes: nanoseconds by the judge's clock, and of processor time."""
        return median([float(wall) for wall, _ in self._recent]), median(
            [float(cpu) for _, cpu in self._recent]
        )

    def interval(self) -> tuple[float, float]:
        """Return the 95 % order-statistic interval of the median; the extremes below six passes."""
        ordered = sorted(self.wall_ns)
        number = math.floor((len(ordered) - MEDIAN_Z * math.sqrt(len(ordered))) / 2)
        number = max(number, 1)
        return float(ordered[number - 1]), float(ordered[-number])

    def resolution_ns(self) -> float:
        """Return half the width of the interval: what a pass cannot be known better than."""
        low, high = self.interval()
        return max((high - low) / 2, LEAST_RESOLUTION_NS)

    def describe(self) -> dict[str, float]:
        """Return what the record keeps, in seconds of a pass."""
        low, high = self.interval()
        return {
            "median_s": median([float(ns) for ns in self.wall_ns]) * 1e-9,
            "low_s": low * 1e-9,
            "high_s": high * 1e-9,
            "empty_passes": len(self.wall_ns),
        }
