"""Settings that suites use are those whose published trials were best, by the records themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from shipped_suites import all_shipped, shipped

from paceline.base.families.family import load_family
from paceline.records.format import record_file
from paceline.records.store.folder import record_paths
from paceline.spec import content
from paceline.spec.suites.grammar import Tuning
from paceline.spec.suites.suite import Suite
from paceline.stats.estimates import Launches
from paceline.stats.unpaired import compare_unpaired_difference

PUBLISHED = content.shipped_root() / "results" / "published"


def tuned_suites() -> list[str]:
    return [name for name, suite in all_shipped().items() if isinstance(suite.model.tuning, Tuning)]


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, record_file.lines_of(path))


def newest_run(suite: str) -> Path:
    """Return the newest published record of a suite's present version."""
    version = shipped(suite).model.version
    for path in sorted(record_paths(PUBLISHED), reverse=True):
        run = next(lines_of(path))
        if any(s["suite"] == suite and s["version"] == version for s in run["suites"]):
            return path
    raise AssertionError(f"no published run of {suite} version {version}: paceline run {suite}")


def means(path: Path, metric: str, defaults: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Return the mean over launches of a metric, by technique and canonical options.

    Options that a technique has got since have their defaults, which change nothing.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for line in lines_of(path):
        if line["line"] == "measurement" and line["metric"]["name"] == metric:
            assert line["status"] == "ok", f"{line['label']}: a trial without a number"
            options = {**defaults.get(line["technique"], {}), **line["options"]}
            key = line["technique"], json.dumps(options, sort_keys=True)
            found.setdefault(key, []).append(line["value"])
    return {key: sum(values) / len(values) for key, values in found.items()}


def chosen(suite: Suite) -> list[tuple[str, str, str]]:
    """Return label, technique and canonical options of everything that had trials."""
    assert isinstance(suite.model.tuning, Tuning)
    return [
        (e.label, e.source.info.name, json.dumps(dict(e.options), sort_keys=True))
        for e in suite.entries(suite.model.techniques, "here")
        if e.label not in suite.model.tuning.untuned
    ]


def test_some_suites_are_tuned() -> None:
    assert "training/low-communication" in tuned_suites()


@pytest.mark.parametrize("name", tuned_suites())
def test_chosen_settings_are_the_best_of_the_published_trials(name: str) -> None:
    suite = shipped(name)
    tuning = suite.model.tuning
    assert isinstance(tuning, Tuning)
    sign = 1 if load_family(suite.family.name).metric(tuning.metric).better == "lower" else -1
    entries = suite.entries(suite.model.techniques, "here")
    defaults = {e.source.info.name: e.source.info.options for e in entries}
    values = means(newest_run(tuning.suite), tuning.metric, defaults)
    assert chosen(suite)
    for label, technique, options in chosen(suite):
        trials = {given: value for (tried, given), value in values.items() if tried == technique}
        assert len(trials) == tuning.trials
        assert min(trials, key=lambda given: sign * trials[given]) == options, f"{label}: {trials}"


def test_the_learning_rate_is_the_least_that_cannot_be_told_from_the_best() -> None:
    losses: dict[float, dict[int, float]] = {}
    for line in lines_of(newest_run("training/learning-rates")):
        if line["line"] == "measurement" and line["metric"]["name"] == "eval_loss":
            losses.setdefault(line["params"]["learning_rate"], {})[line["launch"]] = line["value"]
    launches = {rate: Launches(values=values) for rate, values in losses.items()}
    best = min(launches, key=lambda rate: sum(losses[rate].values()))
    told_apart = {
        rate: compare_unpaired_difference(found, launches[best]).low or 0.0
        for rate, found in launches.items()
    }
    least = min(rate for rate, low in told_apart.items() if low <= 0)
    for name in (*tuned_suites(), "training/tuning"):
        assert shipped(name).model.workload["learning_rate"] == least
