"""Results to be shown elsewhere, as a person chooses them: in papers, pull requests and dashboards.

Comparisons are made over all that a run holds, as ``paceline compare`` makes them, and chosen from afterwards: a
verdict does not depend on what is shown beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.analysis.compare import Comparison, compare_points, ranks
from paceline.analysis.points import Point
from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.family import load_family
from paceline.records.store.lookup import find_run
from paceline.report.summaries.decided import newest_points
from paceline.report.tables.results import format_param, primary_metric
from paceline.spec.plans.points import same_value
from paceline.workflows.choosing import Say, expand_suites
from paceline.workflows.comparing import compare_one


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person wants to show; empty means all."""

    runs: Sequence[str] = ()
    """Names of runs; none, and no suites: the latest."""
    suites: Sequence[str] = ()
    """Files, names or families, whose newest runs are taken."""
    metrics: Sequence[str] = ()
    techniques: Sequence[str] = ()
    """Labels; baselines stay beside them."""
    filters: Sequence[tuple[str, str]] = ()
    """(parameter, value); of one parameter any of its values."""
    baseline: str | None = None
    """In the place of the baselines that the suites name."""
    margin: float | None = None
    """Equivalence margin for every metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What was chosen."""

    points: Sequence[Point]
    comparisons: Sequence[Comparison]


def choose(roots: Sequence[Path], asked: Asked, *, say: Say) -> Shown:
    """Return the points and comparisons that a person chose.

    Args:
        roots: Stores.
        asked: What was chosen.
        say: Told what a person should know and is no error.

    Raises:
        UserError: A name that is not there, or nothing fits.
    """
    points, comparisons = _measured(roots, asked, say)
    kept = _filtered(points, asked.filters)
    chosen = {id(p) for p in kept}
    comparisons = [c for c in comparisons if id(c.point) in chosen]
    _check_techniques(kept, asked.techniques)
    if asked.techniques:
        comparisons = [c for c in comparisons if c.label in asked.techniques]
        for point in kept:
            _narrow(point, asked.techniques)
        kept = [p for p in kept if p.cells or p.failures]
    return Shown(points=kept, comparisons=comparisons)


def _measured(roots: Sequence[Path], asked: Asked, say: Say) -> tuple[Sequence[Point], Sequence[Comparison]]:
    """Return all points of the runs or suites, and all comparisons at them."""
    if asked.suites:
        if asked.runs:
            raise UserError(
                "runs and suites were given", where="--suite", expected="one of them", fix="leave one out"
            )
        names = [suite.name for suite in expand_suites(asked.suites, say=say)]
        points = newest_points(roots, names)
        if not points:
            raise UserError(
                f"no run measured {', '.join(names)}", fix=f"paceline run {' '.join(asked.suites)}"
            )
        labels = {label for p in points for label in p.labels}
        if asked.baseline is not None and asked.baseline not in labels:
            raise UserError(
                f"no point has the technique '{asked.baseline}'",
                where="--baseline",
                expected=expected_one_of(asked.baseline, labels),
            )
        for point in points:
            point.baseline = asked.baseline or point.baseline
        return points, compare_points(points, metrics=asked.metrics, margin=asked.margin)
    records = {r.run_id: r for r in (find_run(roots, name) for name in asked.runs or ("latest",))}
    found = [
        compare_one(r, baseline=asked.baseline, metrics=asked.metrics, margin=asked.margin, say=say)
        for r in records.values()
    ]
    return [p for points, _ in found for p in points], [c for _, made in found for c in made]


def _filtered(points: Sequence[Point], filters: Sequence[tuple[str, str]]) -> list[Point]:
    for key, text in filters:
        known = {k for p in points for k in p.params}
        if key not in known:
            raise UserError(
                f"no point has the parameter '{key}'",
                where=f"--filter={key}={text}",
                expected=expected_one_of(key, known),
            )
        if not any(_has(p, key, text) for p in points):
            values = sorted({format_param(key, p.params.get(key)) for p in points})
            raise UserError(
                f"no point has {key} {text}", where=f"--filter={key}={text}", expected=", ".join(values)
            )
    keys = {key for key, _ in filters}
    kept = [p for p in points if all(any(_has(p, k, t) for k, t in filters if k == key) for key in keys)]
    if not kept:
        given = " ".join(f"--filter={key}={text}" for key, text in filters)
        raise UserError("no point fits all filters together", where=given, fix="leave one out")
    return kept


def _has(point: Point, key: str, text: str) -> bool:
    if key not in point.params:
        return False
    value = point.params[key]
    parameter = load_family(point.family).parameter(key)
    return format_param(key, value) == text or same_value(parameter, value, text)


def _check_techniques(points: Sequence[Point], names: Sequence[str]) -> None:
    known = {label for p in points for label in (*p.labels, *p.failures)}
    for name in names:
        if name not in known:
            raise UserError(
                f"what was chosen has no technique '{name}'",
                where="--techniques",
                expected=expected_one_of(name, known),
            )


def _narrow(point: Point, techniques: Sequence[str]) -> None:
    """Leave only some techniques and the baseline at a point, with the ranks that they have among all."""
    if point.cells:
        ranks(point, primary_metric([point]))
    kept = {*techniques, point.baseline}
    point.cells = {key: cell for key, cell in point.cells.items() if key[0] in kept}
    point.failures = {label: found for label, found in point.failures.items() if label in kept}
    point.ranked = {m: {k: v for k, v in by.items() if k in kept} for m, by in point.ranked.items()}
