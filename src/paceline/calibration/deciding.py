"""The rule that ends a run once it is decided, tried on comparisons whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.calibration.trials import (
    FAKE_FALSE_ALARMS,
    POWER,
    REAL_FALSE_ALARMS,
    Figure,
    calibration_suite,
    run_suite,
    share,
    shorten,
)
from paceline.records.store.folder import RunRecord
from paceline.spec.suites.grammar import MetricSetting
from paceline.spec.suites.suite import Suite
from paceline.stats.estimates import wilson

LAUNCHES = "5..40"
COVERAGE = 0.93
"""Least share of intervals that hold the truth."""
FAKE_MARGIN, REAL_MARGIN = 0.02, 0.05
"""Margins of equivalence: of the fake device, and of real times."""


def fake_deciding_figures(trials: int, store: Path, *, quiet: bool = False) -> list[Figure]:
    """Count false decisions, missed differences and wrong intervals on the fake device.

    Args:
        trials: Comparisons in each of three runs.
        store: Where the runs go.
        quiet: No progress bar.
    """
    figures: list[Figure] = []
    for name, runner, where, truth in (
        ("same-work", "fake", "1 % noise", 1.0),
        ("same-work", "fake-drift", "20 % drift", 1.0),
        ("slower-by-3-percent", "fake", "1 % noise", 1.03),
    ):
        suite = until_decided(shorten(calibration_suite(name), trials), FAKE_MARGIN)
        record = run_suite(suite, runner, store, quiet=quiet)
        if truth == 1:
            what = f"same work, {where}; called faster or slower when the run ended"
            title = f"false decisions, {where}"
            figures.append(share(title, what, record, ("faster", "slower"), FAKE_FALSE_ALARMS, at_most=True))
        else:
            what = f"3 % more work, {where}; called slower when the run ended"
            figures.append(share("power", what, record, ("slower",), POWER, at_most=False))
        figures.append(coverage(f"intervals that hold {truth:g}, {where}", record, truth))
    return figures


def real_deciding_figures(runner: str, store: Path, *, quiet: bool = False) -> list[Figure]:
    """Count false decisions of a technique against itself on a real runner."""
    suite = until_decided(calibration_suite("same-technique"), REAL_MARGIN)
    record = run_suite(suite, runner, store, quiet=quiet)
    what = f"native all-reduce against itself on {runner}; called faster or slower when the run ended"
    title = f"false decisions on {runner}"
    return [
        share(title, what, record, ("faster", "slower"), REAL_FALSE_ALARMS, at_most=True),
        coverage(f"intervals that hold 1 on {runner}", record, 1.0),
    ]


def until_decided(suite: Suite, margin: float) -> Suite:
    """Return the suite measured until decided, with that margin of equivalence for all its metrics."""
    protocol = suite.model.protocol.model_copy(update={"until": "decided", "launches": LAUNCHES})
    metrics = {name: MetricSetting(margin=margin) for name in suite.model.metrics}
    return replace(suite, model=suite.model.model_copy(update={"protocol": protocol, "metrics": metrics}))


def coverage(name: str, record: RunRecord, truth: float) -> Figure:
    """Return how many intervals of a run that was measured until decided hold the true ratio."""
    effects = [c.effect for c in compare_points(points_of(record))]
    ends = [(e.low, e.high) for e in effects if e.low is not None and e.high is not None]
    hits = sum(low <= truth <= high for low, high in ends)
    share_low, share_high = wilson(hits, len(ends))
    value = hits / len(ends) if ends else math.nan
    return Figure(
        name=name,
        what="intervals of the stopped run that hold the true ratio",
        value=value,
        low=share_low,
        high=share_high,
        unit="ratio",
        limit=COVERAGE,
        reached=value >= COVERAGE,
        trials=len(ends),
        hits=hits,
        details={
            "mean_launches": sum(e.num_launches for e in effects) / len(effects) if effects else None,
            "run_id": record.run.run_id,
            "host_class": record.run.host_class,
        },
    )
