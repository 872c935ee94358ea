"""Statistics of two runs that did not share launches: they saw different moments, which no interval can know."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from scipy.special import stdtr, stdtrit

from paceline.base.counting import number_of
from paceline.stats.estimates import (
    CONFIDENCE,
    Estimate,
    Launches,
    exponential,
    median_with_misses,
    ratio_with_zeros,
    without_interval,
)

NOT_INTERLEAVED = "not interleaved: the sides were measured at different times"
"""Travels along with every estimate from two runs."""


@without_interval
def compare_unpaired(left: Launches, right: Launches) -> Estimate:
    """Estimate left / right from two runs that did not share launches (Welch's t on logarithms, Welch 1947).

    With misses it is the ratio of medians, without an interval; a side without launches gives NaN.
    """
    if left.missed or right.missed:
        return _of_medians(left, right)
    a, b = (np.array(list(side.values.values()), dtype=np.float64) for side in (left, right))
    if not (a.size and b.size):
        return _welch(a, b)
    # Of zeros there is no logarithm: all pairs together say whether the ratio is certain.
    if (a <= 0).any() or (b <= 0).any():
        everything = list(itertools.product(a.tolist(), b.tolist()))
        found = ratio_with_zeros(everything)
        return replace(found, num_launches=int(min(a.size, b.size)), warnings=(NOT_INTERLEAVED,))
    delta = _welch(np.log(a), np.log(b), "log launch statistics")
    return replace(
        delta,
        value=exponential(delta.value),
        low=None if delta.low is None else exponential(delta.low),
        high=None if delta.high is None else exponential(delta.high),
        extremes=None
        if delta.extremes is None
        else (exponential(delta.extremes[0]), exponential(delta.extremes[1])),
    )


def _of_medians(left: Launches, right: Launches) -> Estimate:
    """Return the ratio of the sides' medians, where missed launches are infinite; undefined where both are."""
    one, other = (median_with_misses([*s.values.values()], len(s.missed), "launches") for s in (left, right))
    method = f"ratio of medians, {number_of(one.missed + other.missed, 'launch')} missed"
    return Estimate(
        # ∞/∞ is undefined; one infinite side alone still says who is faster.
        value=one.value / other.value if math.isfinite(one.value) or math.isfinite(other.value) else math.nan,
        low=None,
        high=None,
        method=method,
        num_launches=min(one.num_launches, other.num_launches),
        warnings=(NOT_INTERLEAVED,),
        missed=one.missed + other.missed,
    )


@without_interval
def compare_unpaired_difference(left: Launches, right: Launches) -> Estimate:
    """Estimate left − right, in the metric's unit, from two runs that did not share launches (Welch's t)."""
    a, b = (np.array(list(side.values.values()), dtype=np.float64) for side in (left, right))
    return _welch(a, b)


def _welch(a: np.ndarray, b: np.ndarray, what: str = "launch statistics") -> Estimate:
    """Estimate the difference of two means."""
    count = int(min(a.size, b.size))
    delta = float(a.mean() - b.mean()) if count else math.nan
    if count < 2:
        method = "one launch" if count else "no launch on one side"
        return Estimate(
            value=delta, low=None, high=None, method=method, num_launches=count, warnings=(NOT_INTERLEAVED,)
        )
    # Welch: two runs need not have the same spread, nor as many launches.
    variance_a, variance_b = a.var(ddof=1) / a.size, b.var(ddof=1) / b.size
    error = math.sqrt(variance_a + variance_b)
    if error == 0:
        return Estimate(
            value=delta,
            low=delta,
            high=delta,
            method="constant",
            num_launches=count,
            p_value=1.0 if delta == 0 else 0.0,
            spread=0.0,
            warnings=(NOT_INTERLEAVED,),
        )
    # Welch–Satterthwaite: degrees of freedom of a sum of two estimated variances.
    freedom = (variance_a + variance_b) ** 2 / (variance_a**2 / (a.size - 1) + variance_b**2 / (b.size - 1))
    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
    return Estimate(
        value=delta,
        low=delta - half,
        high=delta + half,
        method=f"Welch's t on {what}",
        num_launches=count,
        p_value=float(2 * stdtr(freedom, -abs(delta / error))),
        # So that spread/√n is this error again, as verdicts reckon for paired launches.
        spread=error * math.sqrt(count),
        extremes=(float(a.min() - b.max()), float(a.max() - b.min())),
        warnings=(NOT_INTERLEAVED,),
    )
