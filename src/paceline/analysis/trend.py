"""Trends: one series over many runs, and the nights from which on it is another.

A series is one technique at one point for one metric, under one contract on one host class; its nights are the runs
that measured it. What is looked for is a step that stays. Nights are taken as they would come, one after another: the
newest few are held against those before them. Three things keep the alarms rare:

- values beyond ``CLIP`` spreads count as ``CLIP`` spreads, so one spike is not a change, and a change takes two nights;
- the standard error grows with the autocorrelation of the nights before, so slow weather is not a change either;
- the spread is estimated from the reference alone, with Student's t for its uncertainty, so a step cannot hide itself.

Every look at a series is counted in its p-value, and every series of a report in the q-value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import stdtr

from paceline.analysis.compare import Point
from paceline.base.family import load_family
from paceline.stats.verdicts import Kind, benjamini_hochberg

CLIP = 3.0
"""Deviations beyond so many spreads count as so many."""
LEAST_RECENT, MOST_RECENT = 2, 8
"""Nights that a change may have lasted when it is found."""
LEAST_REFERENCE, MOST_REFERENCE = 8, 60
"""Nights before them that tell what is usual."""
LOOK_LEVEL = 8e-5
"""Level of one night's look: over a hundred nights fewer than 2 % of unchanged series give an alarm."""
ALERT_Q = 0.05
ALERT_NIGHTS = 14
"""A change is news for so many nights."""
RATIO_FLOOR = 1e-9
"""Spread of a series that never varied, relative to its value."""
OFF_TREND_REASONS = frozenset({"calibrate", "correction", "import", "pr", "confirm", "reproduce"})
"""Reasons of runs that are no nights: made to look at something, or not of this code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """One run's value of a series, in base units."""

    run_id: str
    started: str
    value: float
    low: float | None
    high: float | None
    """Ends of the 95 % interval over launches."""
    launches: int
    extremes: tuple[float, float] | None = None
    """Least and largest launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A step that stayed."""

    at: int
    """Index of the first night on the new level."""
    found: int
    """Index of the night that gave it away."""
    before: float
    after: float
    """Middle of the level before and after it, in base units."""
    p_value: float
    """Adjusted for the number of looks at this series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One series over its nights, oldest first."""

    label: str
    metric: str
    unit: str
    better: str
    kind: Kind
    margin: float
    nights: tuple[Night, ...]
    changes: tuple[Change, ...]

    def size(self, change: Change) -> float:
        """Return after / before of a ratio scale, else after − before."""
        if self.kind == "ratio" and change.before:
            return change.after / change.before
        return change.after - change.before

    def worse(self, change: Change) -> bool:
        """Say whether a change went in the wrong direction."""
        return (change.after > change.before) == (self.better == "lower")

    def matters(self, change: Change) -> bool:
        """Say whether a change is larger than the margin within which values count as equal."""
        size = self.size(change)
        if self.kind == "ratio":
            return size <= 0 or abs(math.log(size)) > math.log1p(self.margin)
        return abs(size) > self.margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A recent change that matters, after adjusting for all series that were looked at."""

    history: History
    change: Change
    q_value: float


def histories(measured: Iterable[Point], metrics: Sequence[str]) -> list[History]:
    """Return the series of one point from all its measurements, those with at least two nights.

    Args:
        measured: One workload's measurements in several runs, of one host class and version of the suite.
        metrics: Metrics to follow.
    """
    points = sorted(
        (p for p in measured if p.run.reason not in OFF_TREND_REASONS),
        key=lambda p: (p.run.started, p.run.run_id),
    )
    found = []
    for metric in metrics:
        for label in dict.fromkeys(name for p in points for name in p.labels):
            own = [p for p in points if (label, metric) in p.cells]
            contracts = {p.cells[(label, metric)].contract_id for p in own}
            if len(own) >= 2 and len(contracts) == 1:
                found.append(_history(own, label, metric))
    return found


def _history(points: Sequence[Point], label: str, metric: str) -> History:
    spec = load_family(points[0].family).metric(metric)
    nights = []
    for point in points:
        estimate = point.estimate(label, metric)
        night = Night(
            run_id=point.run.run_id,
            started=point.run.started,
            value=estimate.value,
            low=estimate.low,
            high=estimate.high,
            launches=len(point.cells[(label, metric)].values),
            extremes=estimate.extremes,
        )
        nights.append(night)
    values = [n.value for n in nights]
    cell = points[-1].cells[(label, metric)]
    return History(
        label=label,
        metric=metric,
        unit=cell.unit,
        better=cell.better,
        kind=spec.compared_by,
        margin=spec.margin,
        nights=tuple(nights),
        changes=tuple(change_points(values, kind=spec.compared_by)),
    )


def change_points(values: Sequence[float], *, kind: Kind = "ratio") -> list[Change]:
    """Find the steps of a series, looking at it night by night; nothing that comes later moves what was found.

    Args:
        values: One finite number a night, oldest first.
        kind: ``ratio``: steps of the logarithm where all values are positive.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        return []
    logarithmic = kind == "ratio" and bool((array > 0).all())
    levels = np.log(array) if logarithmic else array
    changes: list[Change] = []
    begin, looks = 0, 0
    for end in range(1, array.size + 1):
        reference = levels[max(begin, end - MOST_RECENT - MOST_REFERENCE) : end - MOST_RECENT]
        if end - MOST_RECENT - begin < LEAST_REFERENCE:
            continue
        looks += 1
        found = _look(reference, levels[end - MOST_RECENT : end], 1.0 if logarithmic else None)
        if found is None:
            continue
        lasted, p_value = found
        at = end - lasted
        before = float(np.median(array[begin:at]))
        changes.append(
            Change(at=at, found=end - 1, before=before, after=math.nan, p_value=min(1.0, p_value * looks))
        )
        begin = at
    ends = [*(c.at for c in changes[1:]), array.size]
    return [
        replace(c, after=float(np.median(array[c.at : end]))) for c, end in zip(changes, ends, strict=False)
    ]


def _look(reference: np.ndarray, recent: np.ndarray, floor: float | None) -> tuple[int, float] | None:
    """Hold the newest nights against those before them; return how many differ and the p-value, or None."""
    centre, spread = _usual(reference)
    least = RATIO_FLOOR * (floor if floor is not None else max(abs(centre), 1e-300))
    spread = max(spread, least)
    usual = np.clip(reference - centre, -CLIP * spread, CLIP * spread) / spread
    newest = np.clip(recent - centre, -CLIP * spread, CLIP * spread) / spread
    counts = np.arange(1, newest.size + 1)
    means = np.cumsum(newest[::-1]) / counts - usual.mean()
    correlation = _autocorrelation(usual)
    errors = np.sqrt(_variance_of_mean(counts, correlation) + _variance_of_mean(usual.size, correlation))
    scores = np.abs(means / errors)[LEAST_RECENT - 1 :]
    best = int(scores.argmax())
    freedom = max(3.0, usual.size * (1 - correlation) / (1 + correlation) - 1)
    p_value = float(2 * stdtr(freedom, -scores[best]))
    return (best + LEAST_RECENT, p_value) if p_value <= LOOK_LEVEL else None


def _usual(values: np.ndarray) -> tuple[float, float]:
    """Return a centre and a spread that few outliers do not move: the median, and the deviation with clipped ends."""
    centre = float(np.median(values))
    deviations = np.abs(values - centre)
    spread = 1.4826 * float(np.median(deviations))
    if spread == 0:
        return centre, float(values.std(ddof=1))
    for _ in range(3):
        clipped = np.minimum(deviations, CLIP * spread)
        spread = math.sqrt(float(clipped @ clipped) / (values.size - 1))
    return centre, spread


def _autocorrelation(values: np.ndarray) -> float:
    """Return the correlation of neighbours, never below 0; corrected for what estimation in short series loses."""
    centred = values - values.mean()
    total = float(centred @ centred)
    if total == 0:
        return 0.0
    found = float(centred[1:] @ centred[:-1]) / total
    return min(0.9, max(0.0, found + (1 + 3 * found) / values.size))


def _variance_of_mean(count: Any, correlation: float) -> Any:
    """Return the variance of the mean of ``count`` neighbours of unit variance that correlate as in AR(1)."""
    if correlation == 0:
        return 1 / count
    r = correlation
    return (1 + 2 * r / (1 - r) * (1 - (1 - r**count) / (count * (1 - r)))) / count


def alerts(found: Iterable[History]) -> list[Alert]:
    """Return recent changes that matter, worst first; q-values are taken over all the series given."""
    series = list(found)
    newest = [h.changes[-1] if h.changes else None for h in series]
    adjusted = benjamini_hochberg([c.p_value if c else 1.0 for c in newest])
    chosen = [
        Alert(history=h, change=c, q_value=q)
        for h, c, q in zip(series, newest, adjusted, strict=True)
        if c is not None and q <= ALERT_Q and len(h.nights) - c.found <= ALERT_NIGHTS and h.matters(c)
    ]
    return sorted(chosen, key=lambda a: (not a.history.worse(a.change), a.q_value))
