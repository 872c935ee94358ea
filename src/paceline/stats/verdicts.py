"""What an estimate allows one to say: verdicts, what would settle an open one, and ranks with ties.

docs/protocol.md derives each rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from scipy.special import ndtri, stdtrit

from paceline.stats.estimates import CONFIDENCE, Estimate

POWER = 0.8
MANY_LAUNCHES = 1000
"""Where the search for the launches that would settle a comparison stops."""
MOST_EFFECT = 700.0
"""Logarithm of a ratio above which it is no float."""
Kind = Literal["ratio", "difference"]
"""What an effect is."""
VerdictName = Literal["faster", "slower", "equivalent", "inconclusive", "incomparable", "invalid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an estimate allows one to say, and what would be needed to say more."""

    name: VerdictName
    reason: str | None = None
    minimum_detectable: float | None = None
    """Relative (or absolute) effect that this many launches would find in 80 % of runs."""
    launches_needed: int | None = None
    """Launches after which the interval would be as narrow as the margin."""
    machine_busy: bool = False
    """Whether others took the machine, so that nothing can be said."""


def judge(
    estimate: Estimate,
    *,
    margin: float,
    better: str,
    kind: Kind = "ratio",
    q_value: float | None = None,
) -> Verdict:
    """Turn an estimate into a verdict.

    ``equivalent`` when the whole interval lies inside the margin, even if it excludes no change; else ``faster`` or
    ``slower`` (better or worse) when it excludes no change; else ``inconclusive``, with what would settle it.

    Args:
        estimate: Ratio or difference with its interval.
        margin: Largest change that nobody should care about: relative for ratios, absolute for differences.
        better: ``lower`` or ``higher``; with ``neither`` only equivalence can be stated.
        kind: What the estimate is.
        q_value: Benjamini-Hochberg adjusted p-value; above 0.05 a difference is not claimed.
    """
    if estimate.busy:
        return Verdict(name="inconclusive", reason=f"machine busy: {estimate.busy}", machine_busy=True)
    if estimate.low is None or estimate.high is None or not math.isfinite(estimate.value):
        return Verdict(name="inconclusive", reason="no interval: " + estimate.method)
    neutral = 1.0 if kind == "ratio" else 0.0
    inside = _inside(estimate, margin, kind)
    # First: a difference that is certain and too small to matter is no finding.
    if inside:
        return Verdict(name="equivalent")
    excluded = estimate.low > neutral or estimate.high < neutral
    if not excluded:
        return _open("the interval includes no change", estimate, margin, kind)
    # The interval is of this comparison alone; of many, some exclude no change by chance.
    if q_value is not None and q_value > 1 - CONFIDENCE:
        reason = f"not significant among all comparisons of this report (q = {q_value:.2g})"
        return _open(reason, estimate, margin, kind)
    if better == "neither":
        return Verdict(name="inconclusive", reason="neither direction of this metric is better")
    # The whole interval lies on one side, so one end tells which.
    lower = estimate.high < neutral
    return Verdict(name="faster" if lower == (better == "lower") else "slower")


def _open(reason: str, estimate: Estimate, margin: float, kind: Kind) -> Verdict:
    detectable, needed = _what_would_settle(estimate, margin, kind)
    return Verdict(name="inconclusive", reason=reason, minimum_detectable=detectable, launches_needed=needed)


@cache
def _t_quantile(freedom: int, probability: float) -> float:
    return float(stdtrit(freedom, probability))


def _inside(estimate: Estimate, margin: float, kind: str) -> bool:
    assert estimate.low is not None and estimate.high is not None
    if kind == "ratio":
        # 1/(1 + m) to 1 + m, so that swapping the two sides changes nothing; 1e-12 is the rounding of exp and log.
        return estimate.low >= 1 / (1 + margin) - 1e-12 and estimate.high <= 1 + margin + 1e-12
    return estimate.low >= -margin and estimate.high <= margin


def minimum_detectable(estimate: Estimate, kind: Kind, *, band: bool = False) -> float | None:
    """Return the effect that these launches find in 80 % of runs: relative for ratios, absolute for differences.

    With spread s over n paired launches (t₀.₉₇₅ + t₀.₈)·s/√n, both of n − 1 degrees of freedom; None without a spread.

    Args:
        estimate: Of the launches.
        kind: What the estimate is.
        band: Return half of the narrowest band in which the whole interval lies in 80 % of runs if the truth is its
            middle: t₀.₉ for t₀.₈, since either end may leave it.
    """
    count, spread = estimate.num_launches, estimate.spread
    if spread is None or count < 2 or spread == 0:
        return None
    # The first excludes no change, the second makes that happen in 80 % of runs.
    effect = _quantiles(count, estimate.confidence, band) * spread / math.sqrt(count)
    if kind == "difference":
        return effect
    # a spread of hundreds, of numbers that are no times, finds nothing that a float could name
    return math.expm1(effect) if effect < MOST_EFFECT else None


def _quantiles(count: int, confidence: float, band: bool) -> float:
    power = (1 + POWER) / 2 if band else POWER
    return _t_quantile(count - 1, 0.5 + confidence / 2) + _t_quantile(count - 1, power)


def launches_to_find(estimate: Estimate, effect: float, kind: Kind, *, band: bool = False) -> int | None:
    """Return how many launches of an estimate's spread find an effect in 80 % of runs; None for too many, or no spread.

    Args:
        estimate: Its spread stands for that of all launches; its number of them does not matter.
        effect: Relative for ratios, absolute for differences.
        kind: What the estimate is.
        band: Whether the effect is half of a band in which the whole interval has to lie.
    """
    size = math.log1p(effect) if kind == "ratio" else effect
    if estimate.spread is None or size <= 0:
        return None
    for count in range(2, MANY_LAUNCHES + 1):
        if _quantiles(count, estimate.confidence, band) * estimate.spread / math.sqrt(count) <= size:
            return count
    return None


def detectable_share(bound: float, trials: int, confidence: float) -> float | None:
    """Return how far a proportion has to lie from a bound for so many trials to decide it in 80 % of runs.

    (z₀.₉₇₅ + z₀.₈)·√(b·(1 − b)/n), by the variance at the bound b (Fleiss, Statistical Methods for Rates and
    Proportions, chapter 2), whatever was found. None where the bound is 0 or 1, or there is no trial.

    Args:
        bound: A share, 0 to 1.
        trials: Samples of 0 or 1.
        confidence: Of the interval.
    """
    if not 0 < bound < 1 or trials < 1:
        return None
    quantiles = float(ndtri(0.5 + confidence / 2)) + float(ndtri(POWER))
    return quantiles * math.sqrt(bound * (1 - bound) / trials)


def least_margin(estimate: Estimate, kind: Kind) -> float | None:
    """Return the least margin by which an interval as wide as this one could show two equals to be equivalent.

    That is what these launches can resolve: half of the interval, relative for ratios; None without an interval.
    """
    if estimate.low is None or estimate.high is None or estimate.low == estimate.high:
        return None
    if kind == "difference":
        return (estimate.high - estimate.low) / 2
    # Half of the interval in logarithms: as wide around a ratio of 1 it would reach from 1/(1 + m) to 1 + m.
    return math.sqrt(estimate.high / estimate.low) - 1 if estimate.low > 0 else None


def _what_would_settle(estimate: Estimate, margin: float, kind: Kind) -> tuple[float | None, int | None]:
    """Return the effect that this many launches find with 80 % power, and the launches for a margin-wide interval."""
    detectable, spread, count = minimum_detectable(estimate, kind), estimate.spread, estimate.num_launches
    if detectable is None or spread is None:
        return None, None
    target = math.log1p(margin) if kind == "ratio" else margin
    if target <= 0:
        # Without a margin: as narrow as the effect that was seen.
        target = abs(math.log(estimate.value)) if kind == "ratio" else abs(estimate.value)
    if target <= 0:
        return detectable, None
    needed = count
    while needed < MANY_LAUNCHES:
        # Assumes the spread seen so far; more launches narrow the interval by √n and by the t quantile.
        half = _t_quantile(needed - 1, 0.5 + estimate.confidence / 2) * spread / math.sqrt(needed)
        if half <= target:
            break
        # In steps of a tenth: the figure is a plan, and one launch more or less is none of its precision.
        needed += max(1, needed // 10)
    return detectable, min(needed, MANY_LAUNCHES)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values that control the false discovery rate (Benjamini and Hochberg 1995).

    The i-th smallest of n becomes the least of p · n / j for j from i on; the order is the argument's.
    """
    count = len(p_values)
    order = sorted(range(count), key=lambda i: p_values[i])
    adjusted = [1.0] * count
    running = 1.0
    for rank in range(count, 0, -1):
        index = order[rank - 1]
        # From the largest down: an adjusted value never exceeds that of a weaker result.
        running = min(running, p_values[index] * count / rank)
        adjusted[index] = running
    return adjusted


def rank_intervals(
    names: Sequence[str], better_than: Mapping[tuple[str, str], bool]
) -> dict[str, tuple[int, int]]:
    """Return each name's best and worst possible rank.

    Args:
        names: All techniques of a board.
        better_than: (a, b) → True when a is distinguishably better than b; missing pairs cannot be told apart.
    """
    ranks: dict[str, tuple[int, int]] = {}
    for name in names:
        # Ties share ranks: whoever is not distinguishably better may still be behind.
        above = sum(1 for other in names if better_than.get((other, name), False))
        below = sum(1 for other in names if better_than.get((name, other), False))
        ranks[name] = (1 + above, len(names) - below)
    return ranks
