"""What a plan until decided is expected to decide: as much as its launches and its budget allow, by earlier runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import seeds
from click.testing import CliRunner

from paceline.analysis.expectation import expected
from paceline.analysis.points import points_of
from paceline.calibration.trials import calibration_suite, run_suite, shorten
from paceline.cli import application
from paceline.records.store.folder import RunRecord
from paceline.spec import content
from paceline.spec.plans.plan import Plan, Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.launches import Launches

POINTS = 6


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    suite = shorten(calibration_suite("slower-by-3-percent"), POINTS)
    return run_suite(
        suite, "fake", tmp_path_factory.mktemp("earlier"), launches=5, seed=seeds.current(), quiet=True
    )


def plan_of(most: int = 40) -> Plan:
    suite = shorten(calibration_suite("slower-by-3-percent"), POINTS)
    profile = load_runner(content.find_runner("fake"))
    return make_plan([suite], profile, Selection(launches=Launches(first=5, most=most)))


def test_what_the_launches_allow_is_expected_and_no_more(record: RunRecord) -> None:
    plan = plan_of().data
    launch_s = dict.fromkeys((b["block"] for b in plan["blocks"]), 1.0)
    found = expected(plan, points_of(record), launch_s, math.inf)
    assert (found.num_known, found.num_unknown) == (POINTS, 0)
    assert found.num_decided == POINTS  # 3 % at 1 % noise
    assert found.run_ids == [record.run_id]
    first_looks = expected(plan, points_of(record), launch_s, 5.0 * POINTS)
    assert first_looks.num_decided <= found.num_decided
    short = {**plan, "stopping": {**plan["stopping"], "budget_s": 4.0 * POINTS}}
    assert expected(short, points_of(record), launch_s, 4.0 * POINTS).num_decided == 0
    nothing = expected(plan, [], launch_s, math.inf)
    assert (nothing.num_known, nothing.num_unknown) == (0, POINTS)


def said(record: RunRecord, *arguments: str) -> str:
    store = record.path.parents[2]
    command = [
        "plan",
        "calibration/slower-by-3-percent",
        "--runner",
        "fake",
        "--results",
        str(store),
        *arguments,
    ]
    result = CliRunner().invoke(application, command)
    assert result.exception is None, result.output
    return result.output


def test_plan_says_it_with_the_run_on_which_it_rests(record: RunRecord) -> None:
    text = said(record, "--launches", "5..40", "--filter", "trial=0")
    assert "5 to 40 launches until decided" in text
    assert f"by run {record.run_id[:13]} it can be expected to decide 1 of 1 comparison" in text
    found: dict[str, Any] = json.loads(said(record, "--budget", "1h", "--filter", "trial=0", "--json"))
    assert found["expected"]["num_known"] == 1
    assert found["stopping"]["budget_s"] == 3600


def test_a_fixed_number_of_launches_expects_nothing(record: RunRecord) -> None:
    assert "expected" not in said(record, "--launches", "5")


def test_without_an_earlier_run_it_says_so(tmp_path: Path, record: RunRecord) -> None:
    command = ["plan", "calibration/slower-by-3-percent", "--runner", "fake", "--results", str(tmp_path)]
    result = CliRunner().invoke(application, [*command, "--launches", "5..40"])
    assert "no earlier run on such a host says how many comparisons it will decide" in result.output
