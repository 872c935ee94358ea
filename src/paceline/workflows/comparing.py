"""Comparisons as a person asks for them: within a run against baselines, of two techniques, of two runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.analysis.compare import Comparison, compare_points
from paceline.analysis.points import Point, headline, points_of
from paceline.analysis.runs import RunComparison, compare_runs, incomparable
from paceline.base.errors import IncomparableError, UserError, expected_one_of
from paceline.records.store.folder import RunRecord
from paceline.workflows.choosing import Say


def compare_one(
    record: RunRecord,
    *,
    baseline: str | None = None,
    technique: str | None = None,
    metrics: Sequence[str] = (),
    margin: float | None = None,
    say: Say,
) -> tuple[list[Point], list[Comparison]]:
    """Compare the techniques of a run with their baselines, or with one of them.

    Args:
        record: The run.
        baseline: Stands in the place of the baselines that the suites name; None leaves those.
        technique: The only one whose comparisons are returned; None for all.
        metrics: Metrics to compare; empty means those that the suites name.
        margin: Equivalence margin for every metric; None means each metric's own.
        say: Told which metrics no technique shares with its baseline.

    Returns:
        The run's points, and the comparisons at them.

    Raises:
        UserError: The run has no such technique or metric, or no point has numbers of both techniques.
    """
    points = points_of(record)
    labels = {label for p in points for label in p.labels}
    for name in (technique, baseline):
        if name is not None and name not in labels:
            raise UserError(f"the run has no technique '{name}'", expected=expected_one_of(name, labels))
    _check_metrics(metrics, points)
    for point in points:
        point.baseline = baseline or point.baseline
    comparisons = compare_points(points, metrics=metrics, margin=margin)
    if technique is not None:
        comparisons = [c for c in comparisons if c.label == technique]
    _name_uncompared(metrics, [c.metric for c in comparisons], say)
    if not comparisons and (baseline or technique):
        sides = f"'{technique or 'another technique'}' and '{baseline or 'its baseline'}'"
        raise UserError(
            f"no point has a number of both {sides}", where=record.run_id, fix="paceline compare RUN"
        )
    return points, comparisons


def compare_two(
    left: RunRecord,
    right: RunRecord,
    *,
    metrics: Sequence[str] = (),
    margin: float | None = None,
    force: bool = False,
    say: Say,
) -> tuple[list[RunComparison], str | None]:
    """Compare two runs, series by series.

    Args:
        left: The run that is looked at.
        right: The run that it is compared with.
        metrics: As in ``compare_one``.
        margin: As in ``compare_one``.
        force: Compare runs that should not be compared.
        say: As in ``compare_one``; also told that they share nothing.

    Returns:
        The comparisons, and why they should not have been made, or None.

    Raises:
        IncomparableError: They differ in what must be equal, and ``force`` was not asked for.
        UserError: Neither run has one of the metrics.
    """
    reason = incomparable(left.run, right.run)
    if reason is not None and not force:
        raise IncomparableError(f"{reason}\n  fix: --force compares them all the same, and marks the result")
    _check_metrics(metrics, [*points_of(left), *points_of(right)])
    comparisons = compare_runs(left, right, metrics=metrics, margin=margin)
    _name_uncompared(metrics, [c.metric for c in comparisons], say)
    if not comparisons:
        say(f"the runs share nothing: {_suites_of(left)} there, {_suites_of(right)} here")
    return comparisons, reason


def _suites_of(record: RunRecord) -> str:
    return ", ".join(str(s["suite"]) for s in record.run.suites) or "no suite"


def _check_metrics(names: Sequence[str], points: Sequence[Point]) -> None:
    """Refuse metrics that none of the points has."""
    known = {metric for p in points for _, metric in p.cells}
    for name in names:
        if name not in known:
            raise UserError(
                f"what is compared has no metric '{name}'",
                where="--metrics",
                expected=expected_one_of(name, known),
            )


def _name_uncompared(names: Sequence[str], found: Sequence[str], say: Say) -> None:
    """Name the metrics that were asked for and that the two sides do not share anywhere.

    Raises:
        UserError: They share none.
    """
    lost = [name for name in names if name not in found]
    text = f"no point has {', '.join(lost)} of both sides"
    if lost and len(lost) == len(names):
        raise UserError(text, where="--metrics", fix="leave --metrics out")
    if lost:
        say(f"--metrics: {text}")


def comparison_facts(c: Comparison) -> dict[str, Any]:
    """Return a comparison of a technique with its baseline as plain data, in base units."""
    return {
        "suite": c.point.suite,
        "params": dict(c.point.params),
        "technique": c.label,
        "baseline": c.point.baseline,
        "metric": c.metric,
        "headline": c.metric in headline(c.point.run, c.point.suite),
        "unit": c.unit,
        "value": c.value.value,
        "baseline_value": c.baseline_value.value,
        "effect": c.effect.value,
        "low": c.effect.low,
        "high": c.effect.high,
        "confidence": c.effect.confidence,
        "kind": c.kind,
        "method": c.effect.method,
        "launches": c.effect.num_launches,
        "p": c.effect.p_value,
        "q": c.q_value,
        "margin": c.margin,
        "verdict": c.verdict.name,
        "reason": c.verdict.reason,
        "minimum_detectable": c.verdict.minimum_detectable,
        "launches_needed": c.verdict.launches_needed,
        "grade": c.grade,
        "warnings": list(c.warnings),
        "run_id": c.point.run.run_id,
    }


def run_comparison_facts(c: RunComparison) -> dict[str, Any]:
    """Return one series of two runs as plain data, in base units."""
    return {
        "suite": c.suite,
        "params": dict(c.params),
        "technique": c.label,
        "metric": c.metric,
        "unit": c.unit,
        "left": c.left.value,
        "right": c.right.value,
        "kind": c.kind,
        "effect": c.effect.value,
        "low": c.effect.low,
        "high": c.effect.high,
        "method": c.effect.method,
        "launches": c.effect.num_launches,
        "q": c.q_value,
        "verdict": c.verdict.name,
        "warnings": list(c.effect.warnings),
    }
