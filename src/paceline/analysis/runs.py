"""One run against another: the series that both measured, at different times, with verdicts that say so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.analysis.compare import adjusted
from paceline.analysis.points import Cell, Point, compared, points_of
from paceline.base.families.family import Bounds, load_family
from paceline.records.format.record import Run
from paceline.records.store.folder import RunRecord
from paceline.stats.estimates import Estimate, estimate_value
from paceline.stats.unpaired import compare_unpaired, compare_unpaired_difference
from paceline.stats.verdicts import Kind, Verdict, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """The same series in two runs."""

    suite: str
    params: Mapping[str, Any]
    label: str
    metric: str
    unit: str
    better: str
    left: Estimate
    right: Estimate
    effect: Estimate
    """left / right, or left − right."""
    kind: Kind
    """``ratio`` or ``difference``."""
    q_value: float | None
    verdict: Verdict
    margin: float
    bounds: Bounds
    """Least and largest value of the metric."""


def incomparable(left: Run, right: Run) -> str | None:
    """Say why two runs must not be compared, or None when they may."""
    for run in (left, right):
        if run.imported_from is not None:
            return f"run {run.run_id} was imported: nothing here verified what it measured"
    if left.host_class != right.host_class:
        return f"host classes differ: '{left.host_class}' and '{right.host_class}'"
    if (left.container or {}).get("image_class") != (right.container or {}).get("image_class"):
        return "container image classes differ"
    how = [_scheduling(run) for run in (left, right)]
    if None not in how and how[0] != how[1]:
        return f"ranks were scheduled differently: '{how[0]}' and '{how[1]}'"
    return None


def _scheduling(run: Run) -> str | None:
    """Return how a run's groups were scheduled; None where no group has several ranks."""
    plan: Mapping[str, Any] = run.plan or {}
    groups: Sequence[Mapping[str, Any]] = plan.get("groups") or ()
    # of records of before: normal
    return run.runner.get("scheduling", "normal") if any(g["ranks"] > 1 for g in groups) else None


def classes_differ(here: str, record: str | None) -> str | None:
    """Say that a run on a host of one class must not be compared with a record of another one, or None when it may."""
    return None if here == record else f"host classes differ: '{here}' here, '{record}' in the record"


def compare_runs(
    left: RunRecord, right: RunRecord, *, metrics: Sequence[str] = (), margin: float | None = None
) -> list[RunComparison]:
    """Compare the series that two runs share; they were not interleaved, which every estimate says."""
    return compare_shared(points_of(left), points_of(right), metrics=metrics, margin=margin)


def compare_shared(
    left: Sequence[Point], right: Sequence[Point], *, metrics: Sequence[str] = (), margin: float | None = None
) -> list[RunComparison]:
    """Compare the series that the points of two runs share.

    Args:
        left: Points of one run, of families that are known here.
        right: Points of the other one.
        metrics: Those to compare; none for what the suites compare.
        margin: For every metric; None for the suites' own.
    """
    right_points = {(p.suite, json.dumps(dict(p.params), sort_keys=True)): p for p in right}
    drafts: list[tuple[Point, Cell, Cell, float, Estimate, Kind]] = []
    for point in left:
        other = right_points.get((point.suite, json.dumps(dict(point.params), sort_keys=True)))
        if other is None:
            continue
        margins = compared(point.run, point.suite)
        for (label, name), cell in sorted(point.cells.items()):
            match = other.cells.get((label, name))
            wanted = name in (metrics or margins)
            if not wanted or match is None or match.contract_id != cell.contract_id:
                continue
            kind = load_family(point.family).metric(name).compared_by
            compare = compare_unpaired if kind == "ratio" else compare_unpaired_difference
            limit = margin if margin is not None else margins.get(name, 0.0)
            effect = compare(cell.launches, match.launches)
            drafts.append((point, cell, match, limit, effect, kind))
    q_values = adjusted([d[4] for d in drafts])
    return [
        RunComparison(
            suite=point.suite,
            params=point.params,
            label=cell.label,
            metric=cell.metric,
            unit=cell.unit,
            better=cell.better,
            left=estimate_value(cell.launches, scale=load_family(point.family).metric(cell.metric).scale),
            right=estimate_value(match.launches, scale=load_family(point.family).metric(cell.metric).scale),
            effect=effect,
            kind=kind,
            q_value=q_value,
            verdict=judge(
                effect,
                margin=limit,
                better=cell.better,
                kind=kind,
                q_value=q_value,
            ),
            margin=limit,
            bounds=load_family(point.family).metric(cell.metric).range_of_values,
        )
        for (point, cell, match, limit, effect, kind), q_value in zip(drafts, q_values, strict=True)
    ]
