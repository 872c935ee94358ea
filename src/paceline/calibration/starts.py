"""Forked ranks against spawned ones: whether what is measured depends on how ranks start."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paceline.analysis.points import compared, points_of
from paceline.base.errors import InfrastructureError
from paceline.base.families.family import load_family
from paceline.calibration.trials import HIDDEN, Figure
from paceline.drivers.measure import measure
from paceline.drivers.progress import RunProgress
from paceline.records.store.folder import RunRecord, read_record
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import RunnerProfile, load_runner
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite
from paceline.stats.estimates import Estimate, Launches, compare_ratio

SUITES = ("calibration/starts", "calibration/starts-memory")
STARTS = ("forked", "spawned")
Key = tuple[str, str, str]
"""Point, technique and metric."""


def start_figures(
    runner: str, store: Path, *, launches: int | None = None, quiet: bool = False
) -> list[Figure]:
    """Measure launches of forked and of spawned ranks in turn, and compare every metric of the suites.

    Each launch is a run of its own; the two of a pair follow each other, and which is first alternates. Their records
    are not kept: the figures hold every value.

    Args:
        runner: A runner with real ranks.
        store: Unused; figures of other kinds keep their records there.
        launches: Pairs; the suites' numbers of launches where it is None.
        quiet: No progress bar.

    Raises:
        InfrastructureError: It was interrupted, or a launch gave no numbers.
    """
    profile = load_runner(content.find_runner(runner))
    profiles = {
        start: replace(profile, model=profile.model.model_copy(update={"start": start})) for start in STARTS
    }
    figures = []
    for suite in (load_suite(content.find_suite(name)) for name in SUITES):
        found: dict[str, dict[Key, dict[int, float]]] = {start: defaultdict(dict) for start in STARTS}
        margins: Mapping[str, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            for pair in range(launches or suite.model.protocol.planned_launches.first):
                for start in STARTS if pair % 2 else reversed(STARTS):
                    record = _launch(suite, profiles[start], Path(folder), quiet=quiet)
                    margins = compared(record.run, suite.name)
                    for key, value in _values(record).items():
                        found[start][key][pair] = value
        figures += [
            _figure(key, found["forked"][key], found["spawned"][key], margins[key[2]])
            for key in found["forked"]
            if key[2] in margins
        ]
    return figures


def _launch(suite: Suite, profile: RunnerProfile, store: Path, *, quiet: bool) -> RunRecord:
    plan = make_plan([suite], profile, Selection(launches=1))
    with RunProgress(plan, quiet=quiet) as progress:
        outcome = measure(plan, [suite], store, reason="calibrate", on_event=progress.event)
    if outcome.path is None:
        raise InfrastructureError("the calibration was interrupted; run it again")
    record = read_record(outcome.path)
    failed = [m for m in record.measurements if m.status != "ok"]
    if failed:
        raise InfrastructureError(f"{failed[0].label} gave no number: {failed[0].reason}")
    return record


def _values(record: RunRecord) -> dict[Key, float]:
    values = {}
    for point in points_of(record):
        name = told(point.params, point.family)
        for (label, metric), cell in point.cells.items():
            (values[(name, label, metric)],) = cell.values.values()
    return values


def told(params: Mapping[str, object], family: str) -> str:
    """Return the parameters that tell points apart, in words: those without their default."""
    defaults = {p.name: p.default for p in load_family(family).parameters}
    kept = {k: v for k, v in params.items() if k not in HIDDEN and v != defaults.get(k)}
    return ", ".join(f"{k} {v}" for k, v in sorted(kept.items()))


def _figure(key: Key, forked: Mapping[int, float], spawned: Mapping[int, float], margin: float) -> Figure:
    point, label, metric = key
    effect = compare_ratio(Launches(values=forked), Launches(values=spawned))
    return Figure(
        name=f"{metric} of {label}, {point}",
        what="forked over spawned, launches in turn",
        value=effect.value,
        low=effect.low,
        high=effect.high,
        unit="ratio",
        limit=1 + margin,
        reached=within(effect, margin),
        trials=effect.num_launches,
        details={"forked": list(forked.values()), "spawned": list(spawned.values())},
    )


def within(effect: Estimate, margin: float) -> bool:
    """Tell whether the whole interval of a ratio lies inside the margin around 1: what is too wide shows nothing."""
    if effect.low is None or effect.high is None:
        return False
    slack = 1 + margin + 1e-12
    return effect.low >= 1 / slack and effect.high <= slack
