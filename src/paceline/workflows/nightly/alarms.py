"""Is tonight worse than before? Suspects against a reference run and the spread of earlier nights; confirmation.

A night is judged in three steps. The gate compares it with a reference run, series by series. What got worse by more
than the margin is a suspect, unless the nights before scatter as widely. Only the suspects' points are measured again;
what that run finds too is an alarm. A machine that failed is not a regression and never alarms.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from paceline.analysis.failures import grouped
from paceline.analysis.gate import Decision, Waiver, judge_run
from paceline.analysis.lateness import late_runs
from paceline.analysis.points import WRONG, points_of
from paceline.analysis.runs import RunComparison, incomparable
from paceline.records.format.record import Measurement
from paceline.records.origin.ancestry import IsAncestor, unknown
from paceline.records.store.folder import Loaded, RunRecord
from paceline.stats.estimates import CONFIDENCE

MIN_NIGHTS = 5
"""Fewer nights say nothing about how much nights differ."""
INFRASTRUCTURE = "infrastructure"
Series = tuple[str, str, str, str]
"""Suite, canonical parameters, label, metric; a technique that gives no result has the metric ``""``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A series that got worse, or a technique whose result is gone or wrong."""

    series: Series
    text: str
    effect: float | None
    """Ratio or difference to the reference; None where there is no number."""
    point_moved: bool = False
    """The suite's baseline technique got worse at this point too: think of the machine and of libraries first."""


def series_of(c: RunComparison) -> Series:
    """Return what names a compared series in every run."""
    return c.suite, json.dumps(dict(c.params), sort_keys=True), c.label, c.metric


def is_outside(c: RunComparison, margin: float | None) -> bool:
    """Say whether a change is larger than anybody should tolerate, not only distinguishable from none."""
    limit = c.margin if margin is None else margin
    change = (
        abs(math.log(c.effect.value)) if c.kind == "ratio" and c.effect.value > 0 else abs(c.effect.value)
    )
    return change > (math.log1p(limit) if c.kind == "ratio" else limit)


def leaves_spread(value: float, earlier: Sequence[float], *, better: str, kind: str) -> bool:
    """Say whether a night's value is worse than earlier nights explain: above the t prediction interval's end.

    Args:
        value: Tonight's.
        earlier: Those of earlier nights; fewer than five decide nothing.
        better: ``lower`` or ``higher``.
        kind: Ratios are judged on logarithms.
    """
    if len(earlier) < MIN_NIGHTS:
        return True
    logarithms = kind == "ratio" and min(value, *earlier) > 0
    past = np.log(earlier) if logarithms else np.asarray(earlier, dtype=np.float64)
    now = math.log(value) if logarithms else value
    count = past.size
    half = (
        float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2)) * float(past.std(ddof=1)) * math.sqrt(1 + 1 / count)
    )
    change = now - float(past.mean())
    return (change if better == "lower" else -change) > half


def night_values(records: Iterable[RunRecord]) -> dict[Series, list[float]]:
    """Return every series' value in each of some nights: the median of its launches."""
    found: dict[Series, list[float]] = {}
    for record in records:
        for point in points_of(record):
            params = json.dumps(dict(point.params), sort_keys=True)
            for (label, metric), cell in point.cells.items():
                series = (point.suite, params, label, metric)
                found.setdefault(series, []).append(float(np.median(list(cell.values.values()))))
    return found


def suspects(
    record: RunRecord,
    reference: RunRecord,
    *,
    earlier: Sequence[RunRecord] = (),
    margin: float | None = None,
    waivers: Sequence[Waiver] = (),
) -> tuple[list[Suspect], Decision]:
    """Compare a night with its reference run.

    Args:
        record: The night.
        reference: What it is compared with.
        earlier: Nights before it, for their spread.
        margin: For every metric; None for the suites' own.
        waivers: Regressions that were accepted.

    Raises:
        IncomparableError: The two runs cannot be compared.
    """
    decision = judge_run(record, reference, margin=margin, waivers=waivers)
    values = night_values(earlier)
    worse = [
        c
        for c in decision.worse
        if is_outside(c, margin)
        and leaves_spread(c.left.value, values.get(series_of(c), ()), better=c.better, kind=c.kind)
    ]
    baselines = {str(s["suite"]): s.get("baseline") for s in record.run.suites}
    moved = {(*series_of(c)[:2], c.metric) for c in worse if c.label == baselines.get(c.suite)}
    found = [
        Suspect(
            series=series_of(c),
            text=_worse_text(c),
            effect=c.effect.value,
            point_moved=c.label != baselines.get(c.suite) and (*series_of(c)[:2], c.metric) in moved,
        )
        for c in worse
    ]
    return [*found, *_gone(record, reference, waivers)], decision


def _worse_text(c: RunComparison) -> str:
    change = f"{c.effect.value:.3f} ×" if c.kind == "ratio" else f"{c.effect.value:+.4g} {c.unit}"
    interval = f" [{c.effect.low:.3f}, {c.effect.high:.3f}]" if c.effect.low is not None else ""
    return f"{c.suite} {c.label} {c.metric} at {_shown(c.params)}: {change}{interval} the reference's"


def _shown(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in params.items() if v is not None)


def _gone(record: RunRecord, reference: RunRecord, waivers: Sequence[Waiver]) -> list[Suspect]:
    """Return techniques that the reference measured and that now fail by themselves, or are wrong."""
    measured = {(m.suite, m.block, m.label) for m in reference.measurements if m.status == "ok"}
    found: dict[Series, Suspect] = {}
    for m in record.measurements:
        lost = m.status not in ("ok", INFRASTRUCTURE) and (m.suite, m.block, m.label) in measured
        if m.status not in WRONG and (not lost or any(w.covers(m.suite, m.label) for w in waivers)):
            continue
        series = (m.suite, json.dumps(dict(m.params), sort_keys=True), m.label, "")
        text = f"{m.suite} {m.label} at {_shown(m.params)}: {m.status}: {m.reason}"
        found.setdefault(series, Suspect(series=series, text=text, effect=None))
    return list(found.values())


def confirmed(first: Sequence[Suspect], second: Sequence[Suspect]) -> tuple[list[Suspect], list[Suspect]]:
    """Split suspects into those that a second run found too, and those that it did not."""
    again = {s.series for s in second}
    return [s for s in first if s.series in again], [s for s in first if s.series not in again]


def infrastructure_failures(record: RunRecord) -> list[str]:
    """Return the reasons for which the machine, not a technique, gave no result, each once with how much it struck."""
    return [f.said for f in grouped(m for m in record.measurements if m.status == INFRASTRUCTURE)]


def points_to_repeat(record: RunRecord, found: Sequence[Suspect]) -> list[Measurement]:
    """Return the measurements of every point with a suspect: its other techniques are what it shared launches with."""
    wanted = {s.series[:2] for s in found}
    return [m for m in record.measurements if (m.suite, json.dumps(dict(m.params), sort_keys=True)) in wanted]


def nights_before(loaded: Loaded, record: RunRecord, is_ancestor: IsAncestor = unknown) -> list[RunRecord]:
    """Return comparable earlier nights of the same suite, runner and tier, newest first.

    Nights of old commits that were measured after newer ones are none (``lateness``).
    """
    run = record.run
    suites = {str(s["suite"]) for s in run.suites}
    found = [
        r
        for r in loaded.records
        if r.run.reason == "nightly"
        and r.run_id < run.run_id
        and {str(s["suite"]) for s in r.run.suites} == suites
        and r.run.runner.get("name") == run.runner.get("name")
        and r.run.tier == run.tier
        and incomparable(run, r.run) is None
    ]
    late = late_runs((r.run for r in found), is_ancestor)
    return sorted((r for r in found if r.run_id not in late), key=lambda r: r.run_id, reverse=True)
