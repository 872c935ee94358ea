"""Where a series of nights changed: a step, soon after a series began or long after, or a slow drift.

Nights are taken as they would come, one after another, and nothing that comes later moves what was found. Three looks
are taken each night:

- **Step**: the newest few nights against those before them. Values beyond ``CLIP`` spreads count as ``CLIP`` spreads,
  so one spike is not a change; the standard error grows with the autocorrelation of the nights before, so slow weather
  is none either; Student's t allows for what the spread's own estimate is worth.
- **Young step**: while a level is younger than ``YOUNG`` nights, clipped values could never fire. The least deviation
  of the newest three nights, which one spike or two do not raise, is held against the nights before, not clipped.
- **Drift**: the window of a step moves along with a drift of a percent a night, and its spread grows with it. So the
  newest nights are also held against the level's **first** nights, which do not move; the spread comes from
  neighbouring nights, whose differences a drift hardly enters. It is told once the level has left the margin.

Every look at a series is counted in its p-value. After a change the next level begins anew, and so does its blindness:
``LEAST_LEVEL`` nights in which no further change can be found.

Sources: Page, Continuous inspection schemes (1954), for the level that does not move; von Neumann, Distribution of the
ratio of the mean square successive difference to the variance (1941), for the spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import stdtr

from paceline.stats.verdicts import Kind

CLIP, LONG_CLIP = 3.0, 3.3
"""Deviations beyond so many spreads count as so many; the second, where three nights or more are told together."""
LEAST_RECENT, MOST_RECENT = 2, 8
"""Nights that a step may have lasted when it is found."""
LEAST_REFERENCE, MOST_REFERENCE = 8, 60
"""Nights before them that tell what is usual."""
LOOK_LEVEL = 5e-5
"""Level of one night's look: over a year of nights fewer than 2 % of unchanged series give an alarm."""
YOUNG, YOUNG_RECENT = 24, 3
"""A level is young for so many nights; nights that a step must have lasted then."""
LEAST_LEVEL = LEAST_REFERENCE + YOUNG_RECENT
"""Nights of a level before any change of it can be found."""
FIRST_NIGHTS, LEAST_FIRST, DRIFT_RECENT = 20, 5, 7
"""Nights, at most and at least, that tell a level, and those that are held against it to find a drift."""
ENDING = 5
"""Newest nights whose line says where a drift has come to."""
MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, of normal values."""
NUM_LOOKS = 3
RATIO_FLOOR = 1e-9
"""Spread of a series that never varied, relative to its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A new level that stayed, or a drift away from the old one."""

    at: int
    """Index of the first night on the new level."""
    found: int
    """Index of the night that gave it away."""
    before: float
    after: float
    """Middle of the level before and after it, in base units."""
    p_value: float
    """Adjusted for the number of looks at this series."""
    kind: Literal["step", "drift"] = "step"
    """How it came: from one night to the next, or slowly."""

    @property
    def slow(self) -> bool:
        """Say whether it came slowly."""
        return self.kind == "drift"


def change_points(values: Sequence[float], *, kind: Kind = "ratio", margin: float = 0.0) -> list[Change]:
    """Find the changes of a series, looking at it night by night; nothing that comes later moves what was found.

    Args:
        values: One finite number a night, oldest first.
        kind: ``ratio``: changes of the logarithm where all values are positive.
        margin: A drift is told once it is larger: a relative size for ratios, else in the unit of the values.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        return []
    logarithmic = kind == "ratio" and bool((array > 0).all())
    levels = np.log(array) if logarithmic else array
    floor = RATIO_FLOOR if logarithmic else RATIO_FLOOR * max(float(np.abs(array).max()), 1e-300)
    least = math.log1p(margin) if logarithmic else margin
    changes: list[Change] = []
    begin, looks = 0, 0
    for end in range(1, array.size + 1):
        level = levels[begin:end]
        if level.size < LEAST_LEVEL:
            continue
        looks += 1
        found = _any_look(level, floor, least)
        if found is None:
            continue
        at = end - found.lasted
        before = _median(array[begin : begin + found.told_by])
        p_value = min(1.0, found.p_value * looks * NUM_LOOKS)
        changes.append(
            Change(at=at, found=end - 1, before=before, after=math.nan, p_value=p_value, kind=found.kind)
        )
        begin = at
    ends = [*(c.at for c in changes[1:]), array.size]
    return [replace(c, after=_median(array[c.at : end])) for c, end in zip(changes, ends, strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a look found: how many nights differ, from how many first ones, and how surely."""

    lasted: int
    told_by: int
    p_value: float
    kind: Literal["step", "drift"]


def _any_look(level: np.ndarray, floor: float, margin: float) -> _Found | None:
    return _step(level, floor) or _young_step(level, floor) or _drift(level, floor, margin)


def _step(level: np.ndarray, floor: float) -> _Found | None:
    """Hold the newest nights against those before them, all clipped."""
    recent, reference = level[-MOST_RECENT:], level[-MOST_RECENT - MOST_REFERENCE : -MOST_RECENT]
    if reference.size < LEAST_REFERENCE:
        return None
    centre, spread = _usual(reference)
    spread = max(spread, floor)
    usual = np.clip(reference - centre, -CLIP * spread, CLIP * spread) / spread
    counts = np.arange(1, recent.size + 1)
    # Two spikes in a row are no change; three nights beyond what is usual may count for more.
    clips = np.where(counts < YOUNG_RECENT, CLIP, LONG_CLIP)[:, None] * spread
    newest = np.clip(recent[::-1] - centre, -clips, clips) / spread
    means = np.tril(newest).sum(axis=1) / counts - usual.mean()
    free = np.abs(means / np.sqrt(1 / counts + 1 / usual.size))[LEAST_RECENT - 1 :].max()
    if 2 * stdtr(usual.size - 1, -free) > LOOK_LEVEL:  # autocorrelation can only raise it
        return None
    correlation = _autocorrelation(usual)
    errors = np.sqrt(_variance_of_mean(counts, correlation) + _variance_of_mean(usual.size, correlation))
    scores = np.abs(means / errors)[LEAST_RECENT - 1 :]
    best = int(scores.argmax())
    p_value = float(2 * stdtr(_freedom(usual.size, correlation), -scores[best]))
    if p_value > LOOK_LEVEL:
        return None
    lasted = _placed(level, best + LEAST_RECENT)
    return _Found(lasted=lasted, told_by=level.size - lasted, p_value=p_value, kind="step")


def _placed(level: np.ndarray, lasted: int) -> int:
    """Return how many nights a step has lasted: of this number and its neighbours the one that splits best.

    Clipped values can put the last night before a large step on its far side, which would spoil the next level.
    """
    return _best_split(level, range(max(LEAST_RECENT, lasted - 1), min(MOST_RECENT, lasted + 1) + 1))[0]


def _best_split(level: np.ndarray, among: range) -> tuple[int, float]:
    """Return the number of newest nights that splits the end of a level best, and the squares that are left."""
    tail = level[-MOST_RECENT - LEAST_REFERENCE :]
    left = {n: float(tail[:-n].var() * (tail.size - n) + tail[-n:].var() * n) for n in among}
    best = min(left, key=left.__getitem__)
    return best, left[best]


def _young_step(level: np.ndarray, floor: float) -> _Found | None:
    """Hold the least deviation of the newest nights against all nights of a young level before them."""
    recent, reference = level[-YOUNG_RECENT:], level[:-YOUNG_RECENT]
    if not LEAST_REFERENCE <= reference.size < YOUNG:
        return None
    deviations = recent - _median(reference)
    least = float(np.abs(deviations).min())
    if abs(np.sign(deviations).sum()) < YOUNG_RECENT:
        return None
    spread = max(float(reference.std(ddof=1)), floor)
    correlation = _autocorrelation(reference)
    variance = _variance_of_mean(YOUNG_RECENT, correlation) + _variance_of_mean(reference.size, correlation)
    p_value = float(2 * stdtr(reference.size - 1, -least / (spread * math.sqrt(variance))))
    if p_value > LOOK_LEVEL:
        return None
    lasted, _ = _best_split(level, range(LEAST_RECENT, MOST_RECENT + 1))
    return _Found(lasted=lasted, told_by=level.size - lasted, p_value=p_value, kind="step")


def _drift(level: np.ndarray, floor: float, margin: float) -> _Found | None:
    """Hold the newest nights against the level's first ones, once they have left the margin."""
    first, recent = level[: min(FIRST_NIGHTS, level.size - DRIFT_RECENT)], level[-DRIFT_RECENT:]
    if first.size < LEAST_FIRST:
        return None
    before = _median(first)
    shift = _median(recent) - before
    if abs(_end_of_line(recent[-ENDING:]) - before) <= margin:
        return None
    differences = np.diff(level)
    spread = max(math.sqrt(float(differences @ differences) / (2 * differences.size)), floor)
    score = abs(shift) / (MEDIAN_ERROR * spread)
    freedom = 2 * differences.size / 3  # of squared differences of neighbours
    free = score / math.sqrt(1 / recent.size + 1 / first.size)
    if 2 * stdtr(freedom, -free) > LOOK_LEVEL:  # autocorrelation can only raise it
        return None
    correlation = _autocorrelation(_detrended(level[:-DRIFT_RECENT]))
    score *= math.sqrt(1 - correlation)  # differences of correlated neighbours are smaller
    variance = _variance_of_mean(recent.size, correlation) + _variance_of_mean(first.size, correlation)
    p_value = float(2 * stdtr(_freedom(freedom + 1, correlation), -score / math.sqrt(variance)))
    if p_value > LOOK_LEVEL:
        return None
    lasted, left = _best_split(level, range(LEAST_RECENT, MOST_RECENT + 1))
    off_line = _detrended(level[-MOST_RECENT - LEAST_REFERENCE :])
    slow = float(off_line @ off_line) < left  # a line fits the newest nights better than two levels do
    return _Found(lasted=lasted, told_by=first.size, p_value=p_value, kind="drift" if slow else "step")


def _end_of_line(values: np.ndarray) -> float:
    """Return where a line through the values ends: an estimate of the newest level that does not lag behind a drift."""
    places = np.arange(values.size) - (values.size - 1) / 2
    slope = float(places @ values) / float(places @ places)
    return float(values.mean()) + slope * float(places[-1])


def _detrended(values: np.ndarray) -> np.ndarray:
    places = np.arange(values.size) - (values.size - 1) / 2
    line = values.mean() + places * (float(places @ values) / float(places @ places))
    rest: np.ndarray = values - line
    return rest


def _freedom(count: float, correlation: float) -> float:
    return max(3.0, count * (1 - correlation) / (1 + correlation) - 1)


def _usual(values: np.ndarray) -> tuple[float, float]:
    """Return a centre and a spread that few outliers do not move: the median, and the deviation with clipped ends."""
    centre = _median(values)
    deviations = np.abs(values - centre)
    spread = 1.4826 * _median(deviations)
    if spread == 0:
        return centre, float(values.std(ddof=1))
    for _ in range(3):
        clipped = np.minimum(deviations, CLIP * spread)
        spread = math.sqrt(float(clipped @ clipped) / (values.size - 1))
    return centre, spread


def _median(values: np.ndarray) -> float:
    """Return the median of few finite numbers in an array, of which numpy's own takes eleven times as long."""
    ordered, middle = np.sort(values), values.size // 2
    return float(ordered[middle] if values.size % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


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
