"""Holds the time of something against that of a fixed reference, in turns, until a bound on their ratio is decided.

The reference is of like nature: a machine that is slow, or shared, slows both alike, and only a slowdown changes
their ratio. A turn measures both twice, in mirrored order; which is first is drawn. The least of two counts, since
others only ever add to a time. After some turns the ratio's interval is looked at (``paceline.stats``), at a level that
pays for all looks:

holds            its upper end is at most the bound
does not hold    its lower end is above the bound
cannot tell now  neither, after the last turn or at the end of the budget
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from measuring import CANNOT_TELL, DECIDED, FAILS, HOLDS

from paceline.stats.estimates import Estimate, Launches, compare_ratio
from paceline.stats.sequential import design

FIRST, MOST = 4, 40
"""Turns before the first look and the last."""
BUDGET_S = 150.0
SLOWDOWN = 1.5
"""What every check has to notice."""

Turn = Callable[[], tuple[float, float]]
"""Measures both; returns the thing's time and the reference's, in one unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the turns say of a bound on the ratio."""

    outcome: str
    ratio: Estimate
    most: float
    """The bound."""
    pairs: tuple[tuple[float, float], ...]

    def __str__(self) -> str:
        """Say it in a line."""
        interval = f"{self.ratio.value:.3f} [{self.ratio.low:.3f}, {self.ratio.high:.3f}]"
        return f"{self.outcome}: {interval} against {self.most:g} after {len(self.pairs)} turns"

    def figure(self) -> dict[str, object]:
        """Return it as a figure of a measured test (``figures``)."""
        ends = {"low": self.ratio.low, "high": self.ratio.high}
        return {
            "value": self.ratio.value,
            **ends,
            "unit": "ratio",
            "most": self.most,
            "turns": len(self.pairs),
        }


def judge(pairs: list[tuple[float, float]], most: float, *, level: float) -> Judged:
    """Judge a bound at one look.

    Args:
        pairs: Times of the thing and of the reference, a pair a turn.
        most: The largest ratio that is fine.
        level: Of the look: the chance that its interval misses the truth.

    Raises:
        ValueError: Fewer than two turns, or a time that is none.
    """
    if len(pairs) < 2:
        raise ValueError(f"{len(pairs)} turns give no interval")
    if not all(math.isfinite(value) and value > 0 for pair in pairs for value in pair):
        raise ValueError(f"times are positive numbers: {pairs}")
    sides = [
        Launches(values=dict(enumerate(side)), confidence=1 - level, until_decided=True)
        for side in zip(*pairs, strict=True)
    ]
    ratio = compare_ratio(*sides)
    assert ratio.low is not None
    assert ratio.high is not None
    outcome = HOLDS if ratio.high <= most else FAILS if ratio.low > most else CANNOT_TELL
    return Judged(outcome=outcome, ratio=ratio, most=most, pairs=tuple(pairs))


def until_decided(
    turn: Turn, most: float, *, budget_s: float = BUDGET_S, now_s: Callable[[], float] = time.monotonic
) -> Judged:
    """Take turns until the bound is decided, all turns are taken, or the budget is spent."""
    planned = design(FIRST, MOST, budget=True)
    pairs: list[tuple[float, float]] = []
    end_s = now_s() + budget_s
    while True:
        pairs.append(turn())
        spent = now_s() >= end_s and len(pairs) >= 2
        if len(pairs) in planned.looks or spent:
            found = judge(pairs, most, level=planned.level)
            if found.outcome != CANNOT_TELL or spent or len(pairs) == planned.looks[-1]:
                return found


def mirrored(thing: Callable[[], float], reference: Callable[[], float], rng: random.Random) -> Turn:
    """Return the turn that measures both twice, in the order ABBA or BAAB.

    Args:
        thing: Measures the thing; returns its time.
        reference: Measures the reference, in the same unit.
        rng: Draws which is first.
    """

    def turn() -> tuple[float, float]:
        times: tuple[list[float], list[float]] = ([], [])
        for side in rng.choice(((0, 1, 1, 0), (1, 0, 0, 1))):
            times[side].append((thing, reference)[side]())
        return min(times[0]), min(times[1])

    return turn


def conclude(found: Judged, what: str, record: Callable[[str, object], None]) -> None:
    """End a measured test with what was found, and record it; only what does not hold fails."""
    record(what, found.figure())
    record(DECIDED, found.outcome)
    if found.outcome == FAILS:
        pytest.fail(f"{what} {found}", pytrace=False)
    if found.outcome == CANNOT_TELL:
        pytest.skip(f"{what} {found}")


def conclude_planted(found: Judged, what: str, record: Callable[[str, object], None]) -> None:
    """End the test of a check: a slowdown was planted, so that the bound must not hold."""
    record(f"{what}, slowed by {SLOWDOWN:g}", {**found.figure(), "most": None, "least": found.most})
    record(DECIDED, {FAILS: HOLDS, HOLDS: FAILS}.get(found.outcome, CANNOT_TELL))
    if found.outcome == HOLDS:
        pytest.fail(f"a slowdown of {SLOWDOWN:g} was not noticed: {what} {found}", pytrace=False)
    if found.outcome == CANNOT_TELL:
        pytest.skip(f"a slowdown of {SLOWDOWN:g}: {what} {found}")
