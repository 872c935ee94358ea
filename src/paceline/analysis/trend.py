"""Trends: one series over many runs, and the nights from which on it is another.

A series is one technique at one point for one metric, under one contract on one host class; its nights are the runs
that measured it, without those of old commits that were measured late (``lateness``). Which nights begin a change,
``changes`` says; here are the series, and the alerts of a report: recent changes that matter, after adjusting for all
its series.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from paceline.analysis.changes import LEAST_LEVEL, Change, change_points
from paceline.analysis.lateness import Busy, Late, late_runs
from paceline.analysis.points import Point
from paceline.base.families.family import load_family
from paceline.records.origin.ancestry import IsAncestor, unknown
from paceline.stats.verdicts import Kind, benjamini_hochberg

ALERT_Q = 0.05
ALERT_NIGHTS = 14
"""A change is news for so many nights."""
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
    driver: str | None = None
    """Version of the accelerator's driver; None on a CPU."""


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
    late: tuple[Late, ...] = ()
    """Runs of old commits that are no nights here, oldest first."""
    busy: tuple[Busy, ...] = ()
    """Runs in which others took the machine, oldest first."""

    @property
    def left_out(self) -> tuple[Late | Busy, ...]:
        """All runs that are no nights here, oldest first."""
        return tuple(sorted((*self.late, *self.busy), key=lambda run: (run.started, run.run_id)))

    @property
    def blind_nights(self) -> int:
        """Nights that are still missing before a change of the newest level could be found; 0 where it can be."""
        begun = self.changes[-1].at if self.changes else 0
        return max(0, LEAST_LEVEL - (len(self.nights) - begun))

    @property
    def driver_changes(self) -> dict[int, str]:
        """Return the nights that began with another driver than the one before, and which they were.

        A driver makes no other history: what it changes has to be found, and is told beside what else happened.
        """
        drivers = [n.driver for n in self.nights]
        pairs = enumerate(pairwise(drivers), start=1)
        return {i: f"driver {old} → {new}" for i, (old, new) in pairs if old and new and old != new}

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


def histories(
    measured: Iterable[Point], metrics: Sequence[str], is_ancestor: IsAncestor = unknown
) -> list[History]:
    """Return the series of one point from all its measurements, those that at least two runs measured.

    Args:
        measured: One workload's measurements in several runs, of one host class and version of the suite.
        metrics: Metrics to follow.
        is_ancestor: What is known of the runs' commits.
    """
    points = sorted(
        (p for p in measured if p.run.reason not in OFF_TREND_REASONS),
        key=lambda p: (p.run.started, p.run.run_id),
    )
    found = []
    known: dict[tuple[str, ...], dict[str, Late]] = {}
    for metric in metrics:
        for label in dict.fromkeys(name for p in points for name in p.labels):
            own = [p for p in points if (label, metric) in p.cells]
            contracts = {p.cells[(label, metric)].contract_id for p in own}
            if len(own) >= 2 and len(contracts) == 1:
                runs = tuple(p.run.run_id for p in own)
                if runs not in known:
                    known[runs] = late_runs((p.run for p in own), is_ancestor)
                history = _history(own, label, metric, known[runs])
                found += [history] if history.nights else []
    return found


def _history(points: Sequence[Point], label: str, metric: str, late: Mapping[str, Late]) -> History:
    spec = load_family(points[0].family).metric(metric)
    nights = []
    busy: list[Busy] = []
    for point in points:
        if point.run.run_id in late:
            continue
        estimate = point.estimate(label, metric)
        if estimate.busy:
            busy.append(Busy(run_id=point.run.run_id, started=point.run.started, who=estimate.busy))
            continue
        night = Night(
            run_id=point.run.run_id,
            started=point.run.started,
            value=estimate.value,
            low=estimate.low,
            high=estimate.high,
            launches=len(point.cells[(label, metric)].values),
            extremes=estimate.extremes,
            driver=(point.run.device or {}).get("driver"),
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
        changes=tuple(change_points(values, kind=spec.compared_by, margin=spec.margin)),
        late=tuple(late.values()),
        busy=tuple(busy),
    )


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
