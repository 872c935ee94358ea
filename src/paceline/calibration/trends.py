"""Trends measured by themselves: false alarms over a year of nights by kinds of noise, and what is found how soon."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from paceline.analysis.changes import Change, change_points
from paceline.base.counting import number_of
from paceline.calibration.trials import Figure
from paceline.stats.estimates import wilson

NIGHTS, NOISE, MARGIN = 365, 0.01, 0.05
FALSE_ALARMS, OTHER_NOISE = 0.02, 0.25
"""Shares of series with an alarm in a year: promised of independent noise, and the most of any other kind."""
FOUND = 0.95
CLEAN = 60
"""Nights before a drift begins."""
SEED = 20261126

Draw = Callable[[np.random.Generator], np.ndarray]


def trend_figures(trials: int, progress: Callable[[str], None] = lambda name: None) -> list[Figure]:
    """Measure the rules that find changes, on simulated nights.

    Args:
        trials: Series of each kind that does not change; changed ones are a quarter as many.
        progress: Called with the name of what is measured next.
    """
    figures = []
    for name, draw in UNCHANGED.items():
        progress(name)
        figures.append(_false_alarms(name, draw, trials))
    changed = max(10, trials // 4)
    for nightly in (0.005, 0.01, 0.02):
        progress(f"drift of {nightly:.1%}")
        figures.append(_drift(nightly, changed))
    for clean in (8, 12, 24):
        progress(f"step after {number_of(clean, 'night')}")
        figures.append(_step(clean, changed))
    return figures


def _plain(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(0, NOISE, NIGHTS)


def _weather(rng: np.random.Generator) -> np.ndarray:
    drawn = _plain(rng)
    drawn[0] /= math.sqrt(0.75)
    for i in range(1, NIGHTS):
        drawn[i] += 0.5 * drawn[i - 1]
    return drawn


def _either(rng: np.random.Generator, share: float, factor: float) -> np.ndarray:
    return _plain(rng) + np.where(rng.random(NIGHTS) < share, math.log(factor), 0.0)


UNCHANGED: dict[str, Draw] = {
    "independent noise": _plain,
    "weather: AR(1), 0.5": _weather,
    "two hosts, 10 % apart": lambda rng: _either(rng, 0.5, 1.1),
    "weekends 10 % faster": lambda rng: (
        _plain(rng) + np.where(np.arange(NIGHTS) % 7 >= 5, math.log(0.9), 0.0)
    ),
    "one night in twenty × 1.3": lambda rng: _either(rng, 0.05, 1.3),
}
"""Logarithms of a year of nights in which nothing changes, by kind of noise."""


def _changes(logarithms: np.ndarray) -> Sequence[Change]:
    return change_points(np.exp(logarithms).tolist(), margin=MARGIN)


def _false_alarms(name: str, draw: Draw, trials: int) -> Figure:
    rng = np.random.default_rng(SEED)
    found = [_changes(draw(rng)) for _ in range(trials)]
    hits = sum(bool(changes) for changes in found)
    drifts = sum(any(c.kind == "drift" for c in changes) for changes in found)
    limit = FALSE_ALARMS if draw is _plain else OTHER_NOISE
    return _share(
        f"alarms in a year: {name}",
        f"unchanged series with an alarm in {NIGHTS} nights; {drifts} of them with a drift",
        hits,
        trials,
        limit,
        reached=hits / trials <= limit,
    )


def _drift(nightly: float, trials: int) -> Figure:
    """Return the nights until a drift is found over those until its sum passes the margin, in the median."""
    rng = np.random.default_rng(SEED)
    passes = math.ceil(math.log1p(MARGIN) / math.log1p(nightly))
    waited = []
    for _ in range(trials):
        levels = rng.normal(0, NOISE, CLEAN + 30)
        levels[CLEAN:] += math.log1p(nightly) * np.arange(1, 31)
        found = [c.found for c in _changes(levels) if c.found >= CLEAN]
        waited.append(found[0] - CLEAN + 1 if found else math.inf)
    middle = float(np.median(waited))
    return Figure(
        name=f"drift of {nightly:.1%} a night",
        what=f"median night on which it is found, over the night ({passes}) on which its sum passes {MARGIN:.0%}",
        value=middle / passes,
        low=None,
        high=None,
        unit="ratio",
        limit=1.0,
        reached=middle <= passes,
        trials=trials,
        details={"median_night": middle, "found": int(np.isfinite(waited).sum())},
    )


def _step(clean: int, trials: int) -> Figure:
    rng = np.random.default_rng(SEED)
    hits = 0
    for _ in range(trials):
        levels = rng.normal(0, NOISE, clean + 30)
        levels[clean:] += math.log(1.5)
        hits += any(clean <= c.found < clean + 10 for c in _changes(levels))
    return _share(
        f"step of 50 % after {number_of(clean, 'night')}",
        "found within ten nights",
        hits,
        trials,
        FOUND,
        reached=hits / trials >= FOUND,
    )


def _share(name: str, what: str, hits: int, trials: int, limit: float, *, reached: bool) -> Figure:
    low, high = wilson(hits, trials)
    return Figure(
        name=name,
        what=what,
        value=hits / trials,
        low=low,
        high=high,
        unit="ratio",
        limit=limit,
        reached=reached,
        trials=trials,
        hits=hits,
    )
