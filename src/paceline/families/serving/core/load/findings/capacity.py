"""The highest rate that a server carries with an objective met: bisection, each step decided by Wilson's interval.

Neighbouring calls share a queue, so that what became of them is no independent draw: near its capacity a server misses
in bursts. The interval counts as many calls as would say as much if they were independent, from the variance of batch
means (Law, Simulation Modeling and Analysis, section 9.5.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.base.counting import number_of
from paceline.families.serving.core.load.findings.counting import wilson

Probe = Callable[[float, int, int], Sequence[bool]]
"""Sends some requests at a rate; the last argument is the probe's number. Returns whether each met the objective, in
the order in which they were due."""
MIN_BATCHES = 20
LEAST_ALONE = 20
"""Calls that had the server to themselves, by which an objective may be out of reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rate that was tried."""

    rate_per_s: float
    met: int
    requests: int
    carried: bool
    decided: bool
    """False where the interval still held the target when patience ended, and the share alone decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a search has found."""

    low_per_s: float
    """The highest rate that was carried."""
    high_per_s: float
    """The lowest rate that was not; infinite where all were carried."""
    steps: tuple[Step, ...]

    @property
    def rate_per_s(self) -> float:
        """Return the capacity: the geometric middle of both."""
        return self.low_per_s if math.isinf(self.high_per_s) else math.sqrt(self.low_per_s * self.high_per_s)


def inflation(seen: Sequence[bool]) -> float:
    """Return how many times the variance of a share is what it were if calls were independent; at least 1."""
    share = sum(seen) / len(seen)
    # Batches have to be longer than a burst of misses, or their means are not independent either; 20 of them give a
    # variance.
    size = len(seen) // MIN_BATCHES
    if size < 2 or not 0 < share < 1:
        return 1.0
    means = [sum(seen[i * size : (i + 1) * size]) / size for i in range(MIN_BATCHES)]
    centre = sum(means) / MIN_BATCHES
    variance = sum((m - centre) ** 2 for m in means) / (MIN_BATCHES - 1)
    # Never below 1: by chance batch means can vary less than independent draws, which is no evidence of more calls.
    return max(1.0, size * variance / (share * (1 - share)))


def met_alone(
    spans: Sequence[tuple[float, float]], met: Sequence[bool], *, target: float
) -> tuple[int, int] | None:
    """Tell whether an objective is missed by calls that had the server to themselves: no lower rate meets it then.

    Args:
        spans: Of each call the instants at which it was sent and had ended.
        met: Whether each met the objective.
        target: The share of them that should.

    Returns:
        How many of them met it, and how many there were, where Wilson's interval lies below the target and there are
        at least ``LEAST_ALONE``; else None.
    """
    order = sorted(range(len(spans)), key=lambda i: spans[i][0])
    seen, busy_until = [], -math.inf
    for place, i in enumerate(order):
        began, ended = spans[i]
        behind = spans[order[place + 1]][0] if place + 1 < len(order) else math.inf
        if busy_until <= began and ended <= behind:
            seen.append(met[i])
        busy_until = max(busy_until, ended)
    if len(seen) < LEAST_ALONE or wilson(sum(seen), len(seen))[1] >= target:
        return None
    return sum(seen), len(seen)


def find_capacity(
    probe: Probe,
    *,
    start_per_s: float,
    most_per_s: float,
    target: float = 0.9,
    precision: float = 0.03,
    requests: int = 400,
    patience: int = 8,
) -> Capacity:
    """Search for the highest rate at which a share of requests meets its objective.

    Args:
        probe: Tries a rate.
        start_per_s: The first rate; it is doubled while it is carried, and halved while it is not.
        most_per_s: Rates above are not tried.
        target: The share.
        precision: Relative distance of both ends at which it is found.
        requests: Of one probe.
        patience: Probes of one rate after which the share alone decides.

    Raises:
        ValueError: Not even a thousandth of the first rate is carried. A probe may raise one, too, where it knows that
            no lower rate is (``met_alone``).
    """
    steps: list[Step] = []

    def carried(rate_per_s: float) -> bool:
        seen: list[bool] = []
        for attempt in range(1, patience + 1):
            seen.extend(probe(rate_per_s, requests, len(steps) * patience + attempt))
            met, sent = sum(seen), len(seen)
            # Fewer calls at the same share: the interval is as wide as independent calls of that number would make it.
            low, high = wilson(met / inflation(seen), sent / inflation(seen))
            decided = low > target or high < target
            if decided:
                break
        good = met >= target * sent
        steps.append(Step(rate_per_s=rate_per_s, met=met, requests=sent, carried=good, decided=decided))
        return good

    low, high = 0.0, math.inf
    rate_per_s = min(start_per_s, most_per_s)
    while low == 0.0 or math.isinf(high):
        if carried(rate_per_s):
            low = rate_per_s
            if rate_per_s >= most_per_s:
                return Capacity(low_per_s=low, high_per_s=high, steps=tuple(steps))
            # By factors until both ends are known: a capacity may be far from the first guess in either direction.
            rate_per_s = min(2 * rate_per_s, most_per_s)
        else:
            high = rate_per_s
            rate_per_s /= 2
            if rate_per_s < start_per_s / 1000:
                raise ValueError(f"{number_of(rate_per_s, 'request', form='g')}/s are not carried either")
        if low and not math.isinf(high):
            break
    while high / low > 1 + precision:
        # The geometric mean, since precision is relative.
        middle = math.sqrt(low * high)
        if carried(middle):
            low = middle
        else:
            high = middle
    return Capacity(low_per_s=low, high_per_s=high, steps=tuple(steps))
