"""From points to comparisons: techniques against their baseline, verdicts, and rank intervals."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from paceline.analysis.points import Cell, Point, compared, grade_of
from paceline.base.families.family import Metric, load_family
from paceline.stats.estimates import (
    Estimate,
)
from paceline.stats.verdicts import Kind, Verdict, benjamini_hochberg, judge, rank_intervals

Draft = tuple[Point, Cell, Cell, float, Estimate, Kind]
"""What a comparison is made of: technique and baseline at a point, the margin, the effect, and what it is."""
AGREEMENT_WIDTH = 0.5
"""Widest interval of an effect, relative to it, that can confirm another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One technique against the baseline at one point, for one metric."""

    point: Point
    label: str
    metric: str
    unit: str
    better: str
    value: Estimate
    """The technique's own value."""
    baseline_value: Estimate
    effect: Estimate
    """Ratio or difference to the baseline."""
    kind: Kind
    """``ratio`` or ``difference``."""
    margin: float
    q_value: float | None
    verdict: Verdict
    grade: str
    warnings: tuple[str, ...]


def compare_points(
    points: Iterable[Point],
    *,
    metrics: Sequence[str] = (),
    margin: float | None = None,
) -> list[Comparison]:
    """Compare every technique with its baseline; q-values are taken over each suite of a run.

    So a comparison has one verdict, whatever stands beside it in a table, a summary or a page.

    Args:
        points: From one or more runs.
        metrics: Metrics to compare; empty means what each suite names.
        margin: Overrides every metric's margin.
    """
    drafts = _drafts(points, metrics, margin)
    q_values = _adjusted_by_suite(drafts)
    comparisons = []
    for (point, cell, base, limit, effect, kind), q_value in zip(drafts, q_values, strict=True):
        if metrics and cell.metric not in metrics:
            continue
        verdict = judge(effect, margin=limit, better=cell.better, kind=kind, q_value=q_value)
        flags = cell.flags | base.flags
        confirmed = (cell.label, cell.metric) in point.confirmed
        comparisons.append(
            Comparison(
                point=point,
                label=cell.label,
                metric=cell.metric,
                unit=cell.unit,
                better=cell.better,
                value=point.estimate(cell.label, cell.metric),
                baseline_value=point.estimate(base.label, base.metric),
                effect=effect,
                kind=kind,
                margin=limit,
                q_value=q_value,
                verdict=verdict,
                grade=grade_of(point.run, effect.num_launches, confirmed, flags),
                warnings=(
                    *sorted(flags),
                    *effect.warnings,
                    *suspicions(effect, load_family(point.family).metric(cell.metric)),
                ),
            )
        )
    return comparisons


def _drafts(points: Iterable[Point], metrics: Sequence[str], margin: float | None) -> list[Draft]:
    """Return what is to be judged, for all metrics that the suites compare and those that are asked for."""
    found: list[Draft] = []
    for point in points:
        margins = compared(point.run, point.suite)
        family = load_family(point.family)
        for name in dict.fromkeys([*metrics, *margins]):
            base = point.cells.get((point.baseline, name))
            if base is None:
                continue
            metric = family.metric(name)
            for label in point.labels:
                cell = point.cells.get((label, name))
                if cell is None or label == point.baseline:
                    continue
                limit = margin if margin is not None else margins.get(name, metric.margin)
                effect = point.effect(label, point.baseline, name)
                found.append((point, cell, base, limit, effect, metric.compared_by))
    return found


def _adjusted_by_suite(drafts: Sequence[Draft]) -> list[float | None]:
    """Return q-values over all that each suite compares in its run; a metric that it does not compare has its own."""
    given: dict[tuple[str, str], tuple[dict[str, Point], dict[str, None]]] = {}
    for point, cell, *_ in drafts:
        points, asked = given.setdefault((point.run.run_id, point.suite), ({}, {}))
        points[point.block] = point
        asked[cell.metric] = None
    found: dict[tuple[str, str, str, str, str], float | None] = {}
    for points, asked in given.values():
        whole = {**next(iter(points.values())).together, **points}
        made = _drafts(whole.values(), list(asked), None)
        by_metric: dict[str, list[Draft]] = {}
        for draft in made:
            point, cell = draft[:2]
            alone = "" if cell.metric in compared(point.run, point.suite) else cell.metric
            by_metric.setdefault(alone, []).append(draft)
        for own in by_metric.values():
            found |= zip(map(_key, own), adjusted([draft[4] for draft in own]), strict=True)
    return [found[_key(draft)] for draft in drafts]


def _key(draft: Draft) -> tuple[str, str, str, str, str]:
    point, cell = draft[:2]
    return point.run.run_id, point.suite, point.block, cell.label, cell.metric


def suspicions(effect: Estimate, metric: Metric) -> tuple[str, ...]:
    """Return what to say of an effect that is better than a metric finds plausible; nothing of others."""
    if metric.suspicious_gain is None or not math.isfinite(effect.value):
        return ()
    neutral = 1.0 if metric.compared_by == "ratio" else 0.0
    gain = (neutral - effect.value) * (1 if metric.better == "lower" else -1)
    if gain <= metric.suspicious_gain:
        return ()
    return (
        f"better than plausible: by more than {metric.suspicious_gain:g}; look at the data and at the baseline",
    )


def confirm(points: Sequence[Point]) -> None:
    """Mark the numbers on which two measurements of the same point agree: what grade A asks for.

    Two runs agree on a technique when the intervals of its effect against the baseline overlap and neither is wider
    than ``AGREEMENT_WIDTH``: intervals that hold everything agree with anything. One run that disagrees undoes it. The
    baseline is confirmed with the first technique that is. Only runs of grade B can confirm.
    """
    found: dict[tuple[str, str], list[tuple[Point, float, float]]] = {}
    for comparison in compare_points(points):
        effect = comparison.effect
        if comparison.grade in "AB" and effect.low is not None and effect.high is not None:
            slack = comparison.margin * (effect.value if comparison.kind == "ratio" else 1.0)
            ends = (comparison.point, effect.low - slack / 2, effect.high + slack / 2)
            width = effect.high - effect.low
            if width > AGREEMENT_WIDTH * (abs(effect.value) if comparison.kind == "ratio" else 1.0):
                continue
            found.setdefault((comparison.label, comparison.metric), []).append(ends)
    for (label, metric), measured in found.items():
        for point, low, high in measured:
            others = (m for m in measured if m[0].run.run_id != point.run.run_id)
            agreed = [other_low <= high and low <= other_high for _, other_low, other_high in others]
            if agreed and all(agreed):
                point.confirmed |= {(label, metric), (point.baseline, metric)}


def adjusted(estimates: Sequence[Estimate]) -> list[float | None]:
    """Adjust the p-values that exist; constants are not tests and stay out of the count."""
    index = [i for i, e in enumerate(estimates) if e.p_value is not None and e.method != "constant"]
    adjusted = benjamini_hochberg([estimates[i].p_value or 0.0 for i in index])
    result: list[float | None] = [None] * len(estimates)
    for i, q_value in zip(index, adjusted, strict=True):
        result[i] = q_value
    return result


def ranks(point: Point, metric: str, behind: Collection[str] = ()) -> dict[str, tuple[int, int]]:
    """Return every technique's rank interval at a point: those that cannot be told apart share ranks.

    All pairs are compared within their shared launches; the p-values of the point are adjusted together.

    Args:
        point: Where.
        metric: By which.
        behind: Techniques that rank behind all others, among themselves by the metric.
    """
    if not behind and metric in point.ranked:
        return point.ranked[metric]
    if metric not in point.ordered:
        point.ordered[metric] = _better_than(point, metric)
    better_than = point.ordered[metric]
    names = [label for label in point.labels if (label, metric) in point.cells]
    first = [name for name in names if name not in behind]
    last = rank_intervals([name for name in names if name in behind], better_than)
    found = rank_intervals(first, better_than) | {
        name: (low + len(first), high + len(first)) for name, (low, high) in last.items()
    }
    if not behind:
        point.ranked[metric] = found
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """Two techniques at one point, for one metric."""

    first: str
    second: str
    effect: Estimate
    """first / second, or first − second."""
    kind: Kind
    """``ratio`` or ``difference``."""
    margin: float
    unit: str
    verdict: Verdict
    """Of the first: ``faster`` where it is the better one."""


def duels(point: Point, metric: str) -> list[Duel]:
    """Compare all pairs of a point's techniques within their shared launches, in the order of their names.

    The p-values of the point are adjusted together: these are the verdicts on which ranks rest.
    """
    cells = {label: point.cells[(label, metric)] for label in point.labels if (label, metric) in point.cells}
    better = next(iter(cells.values())).better if cells else "lower"
    margin = compared(point.run, point.suite).get(metric, 0.0)
    kind = load_family(point.family).metric(metric).compared_by
    pairs = [(a, b) for a in cells for b in cells if a < b]
    estimates = [point.effect(a, b, metric) for a, b in pairs]
    return [
        Duel(
            first=a,
            second=b,
            effect=estimate,
            kind=kind,
            margin=margin,
            unit=cells[a].unit,
            verdict=judge(estimate, margin=margin, better=better, kind=kind, q_value=q_value),
        )
        for (a, b), estimate, q_value in zip(pairs, estimates, adjusted(estimates), strict=True)
    ]


def _better_than(point: Point, metric: str) -> dict[tuple[str, str], bool]:
    """Return for each ordered pair of a point's techniques whether the first is decided to be better."""
    found: dict[tuple[str, str], bool] = {}
    for duel in duels(point, metric):
        found[(duel.first, duel.second)] = duel.verdict.name == "faster"
        found[(duel.second, duel.first)] = duel.verdict.name == "slower"
    return found
