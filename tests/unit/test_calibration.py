"""The harness measured by itself: the fake device's truth is found, and a broken harness would be noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.analysis.points import points_of
from paceline.calibration.trials import (
    Figure,
    fake_figures,
    run_suite,
    share,
    shorten,
    verdicts,
    write_figures,
)
from paceline.records.store.folder import RunRecord
from paceline.spec import content
from paceline.spec.suites.suite_file import load_suite

pytestmark = pytest.mark.timeout(180)
"""Three runs of 300 trials are twelve seconds of a processor's time."""
TRIALS, FEW = 300, 100
SEED = 7
"""Of what the fake device draws: without it a figure would be another one in every run."""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """A run in which one side does 3 % more work."""
    suite = shorten(load_suite(content.find_suite("calibration/slower-by-3-percent")), FEW)
    return run_suite(suite, "fake", tmp_path_factory.mktemp("store"), seed=SEED, quiet=True)


def test_three_percent_are_found_and_in_the_right_direction(record: RunRecord) -> None:
    counts = verdicts(points_of(record))
    assert sum(counts.values()) == FEW
    assert counts["slower"] >= 0.85 * FEW
    assert counts["faster"] == 0


def test_alarms_are_counted_where_there_is_a_difference(record: RunRecord) -> None:
    figure = share("alarms", "known to differ", record, ("faster", "slower"), 0.06, at_most=True)
    assert not figure.reached
    assert figure.shortfall is not None
    assert "alarms" in figure.shortfall


@pytest.mark.full
def test_the_same_work_seldom_differs_also_under_drift(tmp_path: Path) -> None:
    alarms, drifting, power = fake_figures(TRIALS, tmp_path, seed=SEED, quiet=True)
    # Five percent are nominal; with 300 trials ten percent lie four standard deviations above.
    assert alarms.value <= 0.10
    assert drifting.value <= 0.10
    assert power.value >= 0.80
    assert alarms.trials == drifting.trials == power.trials == TRIALS


def test_unpaired_sides_would_show_the_drift_as_spread(tmp_path: Path) -> None:
    """The pairing is what makes drift harmless: without it the launches differ by 20 %."""
    suite = shorten(load_suite(content.find_suite("calibration/same-work")), 20)
    drifting = run_suite(suite, "fake-drift", tmp_path, seed=SEED, quiet=True)
    spreads = []
    for point in points_of(drifting):
        values = point.cells[("steady", "latency")].values
        spreads.append(values[4] / values[0])
    assert 1.1 < sorted(spreads)[len(spreads) // 2] < 1.35


def test_figures_are_written_with_what_was_not_reached(tmp_path: Path) -> None:
    good = Figure(
        name="alarms",
        what="w",
        value=0.05,
        low=0.04,
        high=0.06,
        unit="ratio",
        limit=0.06,
        reached=True,
        trials=9,
        hits=1,
    )
    bad = replace(good, name="power", value=0.5, limit=0.9, reached=False)
    path = write_figures(tmp_path / "deep", "fake", [good, bad])
    document = json.loads(path.read_text())
    assert [f["name"] for f in document["figures"]] == ["alarms", "power"]
    assert len(document["not_reached"]) == 1
    assert document["not_reached"][0].startswith("power")
