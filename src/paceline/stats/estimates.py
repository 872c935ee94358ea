"""Statistics of comparison, as pure functions of numbers.

The unit of replication is the launch: every function takes one value for each launch, and differences within a launch
are noise that the launch's own statistic has already absorbed. docs/protocol.md derives each formula.

One module, because estimates fall back to one another: a ratio with zeros, with misses, of constants or of few launches
is another of them, and which one was taken must be read in one place.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, wraps
from typing import Any, Literal, ParamSpec

import numpy as np
from scipy.special import bdtr, ndtri, stdtr, stdtrit

from paceline.base.counting import number_of

CONFIDENCE = 0.95
# Of fewer launches there are too few distinct resamples for the tails that an interval is read from.
BOOTSTRAP_FROM = 10
"""From this number of launches on, the hierarchical bootstrap replaces the t interval."""
BOOTSTRAP_DRAWS = 4000
RESAMPLED: Mapping[str, Callable[..., np.ndarray]] = {"median": np.median, "mean": np.mean}
"""Statistics whose spread samples can tell; an extreme, a sum or the last of them is resampled by launches alone."""


Sides = ParamSpec("Sides")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its interval and how it was computed.

    For a comparison the value is a ratio (technique / baseline) or a difference (technique − baseline).
    """

    value: float
    low: float | None
    high: float | None
    method: str
    num_launches: int
    p_value: float | None = None
    spread: float | None = None
    """Standard deviation over launches, of logarithms for ratios."""
    warnings: tuple[str, ...] = ()
    extremes: tuple[float, float] | None = None
    """Least and largest value of a launch (of a pair of launches in a comparison); None with fewer than two."""
    confidence: float = CONFIDENCE
    """Nominal confidence of the interval; above 95 % where a run was looked at several times before it stopped, so that
    all these looks together have 95 % (``paceline.stats.sequential``)."""
    missed: int = 0
    """Launches, among ``num_launches``, of which a side never came to have a value."""
    busy: str = ""
    """Who took the machine, where that leaves too few launches for an interval."""
    trials: int | None = None
    """How many samples of 0 or 1 a proportion counts; None of anything else."""


FEW = 64
"""Numbers that Python puts in order sooner than numpy takes them: most medians are over five launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """One side of a comparison: a value for each launch, and the samples behind it where they matter."""

    values: Mapping[int, float]
    """Launch number → launch statistic."""
    samples: Mapping[int, Sequence[float]] = field(default_factory=dict)
    statistic: str = "median"
    """How a launch's samples became its value."""
    missed: frozenset[int] = frozenset()
    """Launches that looked for a value and came to none, such as a time until a target that was never reached."""
    confidence: float = CONFIDENCE
    """Nominal confidence of intervals (``Estimate.confidence``)."""
    until_decided: bool = False
    """Whether a look at these launches ended them, by Student's t, which then is the interval as well."""
    busy: str = ""
    """Who took the machine in all but a few launches: what these give has no interval."""


def without_interval(function: Callable[Sides, Estimate]) -> Callable[Sides, Estimate]:
    """Let an estimate of launches in which others took the machine have no interval: their effect may be the load's."""

    @wraps(function)
    def estimate(*sides: Sides.args, **settings: Sides.kwargs) -> Estimate:
        found = function(*sides, **settings)
        who = next((side.busy for side in sides if isinstance(side, Launches) and side.busy), "")
        if not who or found.method == "constant":
            return found
        return replace(
            found, low=None, high=None, p_value=None, spread=None, method=f"machine busy: {who}", busy=who
        )

    return estimate


def median(values: Sequence[float]) -> float:
    """Return the median of at least one number, in their unit; not a number where one of them is none."""
    if len(values) > FEW:
        return float(np.median(np.asarray(values, dtype=np.float64)))
    return math.nan if any(map(math.isnan, values)) else float(statistics.median(values))


def launch_statistic(samples: Sequence[float], statistic: str) -> float:
    """Reduce the samples of one launch to one number.

    Raises:
        ValueError: Empty or non-finite samples, or an unknown statistic.
    """
    array = np.asarray(samples, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError("samples are empty or not finite")
    functions: dict[str, Callable[[np.ndarray], Any]] = {
        "median": np.median,
        "mean": np.mean,
        "max": np.max,
        "sum": np.sum,
        "last": lambda values: values[-1],
    }
    if statistic not in functions:
        raise ValueError(f"unknown statistic '{statistic}'")
    return float(functions[statistic](array))


@without_interval
def estimate_value(side: Launches, *, scale: Literal["log", "linear", "proportion"] = "log") -> Estimate:
    """Estimate a metric's value over launches, with an interval where there are at least two launches.

    Args:
        side: The launches.
        scale: ``log`` for what is compared by ratio, as long as all values are positive; ``linear`` for what is
            compared by difference; ``proportion`` counts samples of 0 and 1.

    Returns:
        In the metric's unit; of missed launches the median, with an interval by the order of at least six; of a single
        launch its value, without an interval.
    """
    # A missed launch is infinitely late: a mean would be infinite, a median is not until half are missed.
    if side.missed:
        return median_with_misses([*side.values.values()], len(side.missed), "launches", side.confidence)
    values = [float(side.values[k]) for k in sorted(side.values)]
    count = len(values)
    if scale == "proportion":
        return _proportion(side)
    centre = values[0] if count else math.nan
    if count < 2:
        return Estimate(value=centre, low=None, high=None, method="one launch", num_launches=count)
    # What is counted, such as bytes, has no spread; a t interval of it would divide zero by zero.
    if max(values) == min(values):
        return Estimate(
            value=centre, low=centre, high=centre, method="constant", num_launches=count, spread=0.0
        )
    # Times are skewed and compared by ratio: their logarithms are closer to normal, and the interval stays positive.
    if scale == "log" and min(values) > 0:
        logs = [math.log(v) for v in values]
        low, high, spread, _ = _t_interval_and_test(logs, side.confidence)
        return Estimate(
            value=exponential(_mean(logs)),
            low=exponential(low),
            high=exponential(high),
            method="t on log launch statistics",
            num_launches=count,
            spread=spread,
            extremes=(min(values), max(values)),
            confidence=side.confidence,
        )
    low, high, spread, _ = _t_interval_and_test(values, side.confidence)
    return Estimate(
        value=_mean(values),
        low=low,
        high=high,
        method="t on launch statistics",
        num_launches=count,
        spread=spread,
        extremes=(min(values), max(values)),
        confidence=side.confidence,
    )


def median_with_misses(
    values: Sequence[float], num_missed: int, what: str, confidence: float = CONFIDENCE
) -> Estimate:
    """Return the median of values of which some are infinite, since they were missed."""
    everything = [*values, *[math.inf] * num_missed]
    low, high = _order_interval(everything, confidence)
    return Estimate(
        value=float(np.median(everything)) if everything else math.nan,
        low=low,
        high=high,
        method=f"median of {what}, {num_missed} of {len(everything)} missed",
        num_launches=len(everything),
        missed=num_missed,
        confidence=confidence,
    )


def _order_interval(values: Sequence[float], confidence: float) -> tuple[float | None, float | None]:
    """Return the interval of a median by the order of values alone, by the binomial law of the sign test.

    There is none of fewer than six values at 95 %, and none that reaches to infinity.
    """
    ordered, count = sorted(values), len(values)
    outside = 0
    while 2 * outside < count and 2 * float(bdtr(outside, count, 0.5)) <= 1 - confidence:
        outside += 1
    if not outside or not math.isfinite(ordered[-outside]):
        return None, None
    return ordered[outside - 1], ordered[-outside]


def _ratio_with_misses(technique: Launches, baseline: Launches) -> Estimate:
    """Return the median of the paired ratios, of which a launch that both have missed has none."""
    ratios = []
    for launch in sorted(technique.values.keys() | technique.missed):
        if launch in technique.values and launch in baseline.values:
            ratios.append(technique.values[launch] / baseline.values[launch])
        elif launch in technique.values and launch in baseline.missed:
            # Only the baseline missed: the technique is faster by any factor. The median needs no more than the order.
            ratios.append(0.0)
        elif launch in baseline.values:
            ratios.append(math.inf)
    num_missed = len(technique.missed | baseline.missed)
    confidence = max(technique.confidence, baseline.confidence)
    low, high = _order_interval(ratios, confidence)
    below, above = (sum(r < 1 for r in ratios), sum(r > 1 for r in ratios))
    return Estimate(
        value=float(np.median(ratios)) if ratios else math.nan,
        low=low,
        high=high,
        method=f"median of paired ratios, {number_of(num_missed, 'launch')} missed",
        num_launches=len(ratios),
        # the sign test's, of those that are not equal
        p_value=None if low is None else min(1.0, 2 * float(bdtr(min(below, above), below + above, 0.5))),
        missed=num_missed,
        confidence=confidence,
    )


def _proportion(side: Launches) -> Estimate:
    """Count the 0/1 samples of all launches."""
    pooled = [s for k in sorted(side.samples) for s in side.samples[k]]
    if not pooled:
        pooled = [side.values[k] for k in sorted(side.values)]
    # Pooled over launches: Wilson's interval is that of a number of trials.
    successes, total = round(sum(pooled)), len(pooled)
    low, high = wilson(successes, total, side.confidence)
    return Estimate(
        value=successes / total,
        low=low,
        high=high,
        method="Wilson",
        num_launches=len(side.values),
        confidence=side.confidence,
        trials=total,
    )


@without_interval
def compare_ratio(technique: Launches, baseline: Launches, *, seed: int = 0) -> Estimate:
    """Estimate technique / baseline from the launches that both have, paired by launch.

    Below ten launches the interval is Student's t on the log-ratios; from ten on it is a hierarchical bootstrap
    (launches, then samples inside them). A run that was measured until decided has the t interval at every number of
    launches, since that is what its launches were ended by. Values must be positive. With misses it is the median of
    the ratios, with an interval by their order where six launches or more have one.
    """
    if technique.missed or baseline.missed:
        return _ratio_with_misses(technique, baseline)
    # Paired by launch: both sides saw the same machine at the same time, and what that did to both cancels.
    shared = sorted(set(technique.values) & set(baseline.values))
    pairs = [(technique.values[k], baseline.values[k]) for k in shared]
    if not pairs:
        return Estimate(value=math.nan, low=None, high=None, method="no shared launch", num_launches=0)
    if any(a <= 0 or b <= 0 for a, b in pairs):
        return ratio_with_zeros(pairs)
    logs = [math.log(a) - math.log(b) for a, b in pairs]
    centre = exponential(_mean(logs))
    count = len(pairs)
    # Equal but for the rounding of logarithms: a spread of 1e-16 would make a t test certain of anything.
    if max(logs) - min(logs) < 1e-12:
        p_value = 1.0 if abs(logs[0]) < 1e-12 else 0.0
        if (count > 1 and _constant_sides(pairs)) or _constant_samples(technique, baseline, shared):
            quotient = pairs[0][0] / pairs[0][1]
            return Estimate(
                value=quotient,
                low=quotient,
                high=quotient,
                method="constant",
                num_launches=count,
                p_value=p_value,
                spread=0.0,
            )
    if count < 2:
        return Estimate(value=centre, low=None, high=None, method="one launch", num_launches=count)
    # Both sides were looked at as often; the stricter level covers a side that was read from another run.
    confidence = max(technique.confidence, baseline.confidence)
    low, high, spread, p_value = _t_interval_and_test(logs, confidence)
    stopped = technique.until_decided or baseline.until_decided
    method = "t on paired log-ratios" + _over_looks(stopped)
    resampled = count >= BOOTSTRAP_FROM and technique.statistic in RESAMPLED and not stopped
    if resampled and all(len(technique.samples.get(k, ())) > 1 for k in shared):
        draws = _bootstrap_log_ratios(technique, baseline, shared, seed)
        # The percentile interval, at 95 %: runs until decided, whose level may be another, do not come here.
        low, high = (float(q) for q in np.quantile(draws, [0.025, 0.975]))
        method = "hierarchical bootstrap of paired log-ratios (launches, samples)"
    return Estimate(
        value=centre,
        low=exponential(low),
        high=exponential(high),
        method=method,
        num_launches=count,
        p_value=p_value,
        spread=spread,
        extremes=(exponential(min(logs)), exponential(max(logs))),
        confidence=confidence,
    )


def _constant_samples(technique: Launches, baseline: Launches, shared: Sequence[int]) -> bool:
    """Tell whether several samples of every launch are one and the same number on each side, as byte counts are."""
    if any(len({side.values[k] for k in shared}) > 1 for side in (technique, baseline)):
        return False  # without a look at the samples
    sides = [[x for k in shared for x in side.samples.get(k, ())] for side in (technique, baseline)]
    return all(len(values) > len(shared) and len(set(values)) == 1 for values in sides)


def _constant_sides(pairs: Sequence[tuple[float, float]]) -> bool:
    return len({a for a, _ in pairs}) == 1 and len({b for _, b in pairs}) == 1


def ratio_with_zeros(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Say what a ratio is when values are zero: 1 of equals, 0 of nothing to something, otherwise undefined."""
    tops, bottoms = (sorted(values) for values in zip(*pairs, strict=True))
    # Of zeros no logarithm exists, so that only certain answers are given.
    known = 1.0 if all(a == b for a, b in pairs) else 0.0 if tops[-1] == 0 < bottoms[0] else None
    value = known
    if value is None:
        value = math.inf if tops[0] > 0 == bottoms[-1] else math.nan
    return Estimate(
        value=value,
        low=known,
        high=known,
        method="undefined: a side is zero" if known is None else "constant",
        num_launches=len(pairs),
        p_value=known,
    )


@without_interval
def compare_difference(technique: Launches, baseline: Launches) -> Estimate:
    """Estimate technique − baseline from the launches that both have, paired by launch, with Student's t.

    The value is in the metric's unit; with one shared launch there is no interval, with none the value is NaN.
    """
    shared = sorted(set(technique.values) & set(baseline.values))
    deltas = [float(technique.values[k] - baseline.values[k]) for k in shared]
    if not deltas:
        return Estimate(value=math.nan, low=None, high=None, method="no shared launch", num_launches=0)
    centre = _mean(deltas)
    if len(deltas) < 2:
        return Estimate(value=centre, low=None, high=None, method="one launch", num_launches=len(deltas))
    if max(deltas) == min(deltas):
        return Estimate(
            value=centre,
            low=centre,
            high=centre,
            method="constant",
            num_launches=len(deltas),
            p_value=1.0 if centre == 0 else 0.0,
            spread=0.0,
        )
    confidence = max(technique.confidence, baseline.confidence)
    low, high, spread, p_value = _t_interval_and_test(deltas, confidence)
    return Estimate(
        value=centre,
        low=low,
        high=high,
        method="t on paired differences" + _over_looks(technique.until_decided or baseline.until_decided),
        num_launches=len(deltas),
        p_value=p_value,
        spread=spread,
        extremes=(min(deltas), max(deltas)),
        confidence=confidence,
    )


def _mean(values: Sequence[float]) -> float:
    """Return the mean; NaN of numbers whose sum no float can hold, as records of other people may have them."""
    try:
        # Exact summation: the result must not depend on the order in which launches were read.
        return math.fsum(values) / len(values)
    except (OverflowError, ValueError):
        return math.nan


def exponential(value: float) -> float:
    """Return e to the power of a value; infinite where no float can hold it."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _over_looks(until_decided: bool) -> str:
    """Return what a method's name says of an interval that may be one of several looks."""
    return ", for all looks of a run until decided" if until_decided else ""


def _t_interval_and_test(values: Sequence[float], confidence: float) -> tuple[float, float, float, float]:
    """Return the ends of the mean's interval, the standard deviation, and the p-value of a mean of 0.

    The p-value is that of all looks: below 0.05 exactly where the interval leaves out 0. Without arrays: a site
    compares all pairs of techniques at all points, each over a handful of launches.
    """
    count, mean = len(values), _mean(values)
    # n/(n − 1): the mean was estimated from the same values (Bessel).
    spread = math.sqrt(_mean([(v - mean) * (v - mean) for v in values]) * count / (count - 1))
    error = spread / math.sqrt(count)
    half = _t_quantile(count - 1, confidence) * error
    never_varied = 1.0 if mean == 0 else 0.0
    p_value = float(2 * stdtr(count - 1, -abs(mean / error))) if error else never_varied
    if confidence != CONFIDENCE:
        # Scaled as the level was, from 5 % to that of one look, so that 0.05 keeps its meaning for corrections.
        p_value = min(1.0, p_value * (1 - CONFIDENCE) / (1 - confidence))
    return mean - half, mean + half, spread, p_value


@lru_cache(maxsize=1 << 12)
def _t_quantile(freedom: int, confidence: float) -> float:
    return float(stdtrit(freedom, 0.5 + confidence / 2))


def _bootstrap_log_ratios(
    technique: Launches, baseline: Launches, shared: Sequence[int], seed: int
) -> np.ndarray:
    """Draw launches with replacement and samples within each drawn launch; return the mean log-ratio of each draw."""
    rng = np.random.default_rng(seed)
    per_launch = np.empty((len(shared), BOOTSTRAP_DRAWS))
    for row, launch in enumerate(shared):
        tops = _resampled(technique, launch, rng)
        bottoms = _resampled(baseline, launch, rng)
        per_launch[row] = np.log(tops) - np.log(bottoms)
    # Launches first, since they are the unit of replication; samples inside them add what one launch cannot know.
    rows = rng.integers(0, len(shared), size=(len(shared), BOOTSTRAP_DRAWS))
    drawn: np.ndarray = np.take_along_axis(per_launch, rows, axis=0).mean(axis=0)
    return drawn


def _resampled(side: Launches, launch: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a launch's samples with replacement and return the launch's statistic of each draw."""
    array = np.asarray(side.samples[launch], dtype=np.float64)
    picks = rng.integers(0, array.size, size=(BOOTSTRAP_DRAWS, array.size))
    found: np.ndarray = RESAMPLED[side.statistic](array[picks], axis=1)
    return found


def wilson(successes: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion (Wilson 1927); 0 to 1 of no trials."""
    if total == 0:
        return 0.0, 1.0
    z = float(ndtri(0.5 + confidence / 2))
    share = successes / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    # Exactly: rounding would leave 1e-17 where the formula gives 0.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == total else min(1.0, centre + half)
    return low, high
