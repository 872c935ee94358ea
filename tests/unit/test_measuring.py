"""A measured test holds, does not hold, or cannot be told on a machine on which others compute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from figures import Figures
from measuring import CANNOT_TELL, FAILS, HOLDS, Reading, Try, again, between, outcome_of

from paceline.records.store.health import read_health

TESTS = Path(__file__).parents[1]


def one(passed: bool, others: float = 0.0, stolen: float = 0.0) -> Try:
    return Try(passed=passed, seconds=3.0, others_cores=others, stolen=stolen)


def said(outcome: str) -> Try:
    return Try(passed=outcome == HOLDS, seconds=3.0, others_cores=0.8, stolen=0.0, decided=outcome)


GOOD, BAD, BUSY, STOLEN = one(True), one(False), one(False, others=0.8), one(False, stolen=0.05)


@pytest.mark.parametrize(
    ("tries", "outcome", "more"),
    [
        ([GOOD], HOLDS, False),
        ([BAD], CANNOT_TELL, True),
        ([BAD, BAD], FAILS, False),
        ([BAD, GOOD], HOLDS, False),
        ([BUSY], CANNOT_TELL, True),
        ([BUSY, BUSY], CANNOT_TELL, True),
        ([BUSY, BUSY, BUSY], CANNOT_TELL, False),
        ([STOLEN, STOLEN, STOLEN], CANNOT_TELL, False),
        ([BUSY, BAD, BUSY], CANNOT_TELL, False),
        ([BAD, BUSY, BAD], FAILS, False),
        ([BUSY, BUSY, GOOD], HOLDS, False),
        ([said(HOLDS)], HOLDS, False),
        ([said(FAILS)], FAILS, False),
        ([said(CANNOT_TELL)], CANNOT_TELL, False),
    ],
)
def test_a_failure_is_believed_twice_on_a_quiet_machine(tries: list[Try], outcome: str, more: bool) -> None:
    assert outcome_of(tries) == outcome
    assert again(tries) is more


RECORDED = [
    (0.2, None, 0.3, None),
    (0.3, 0.3, 0.3, None),
    (0.4, None, 0.3, "0.4 s, expected 0.3 at most"),
    (0.2, 0.25, 0.3, "0.2 s, expected 0.25 at least"),
    (float("nan"), None, 0.3, "no number: nan"),
    (float("inf"), 0.3, None, "no number: inf"),
    (None, None, 0.3, "no number: None"),
]


@pytest.mark.parametrize(("value", "least", "most", "problem"), RECORDED)
def test_a_figure_is_recorded_and_then_held_to_its_bounds(
    value: float | None, least: float | None, most: float | None, problem: str | None
) -> None:
    recorded: dict[str, object] = {}
    try:
        Figures(recorded.__setitem__)("a time", value, unit="s", least=least, most=most)
    except AssertionError as error:
        assert problem is not None
        assert problem in str(error)
    else:
        assert problem is None
    kept = None if problem and problem.startswith("no number") else value
    assert recorded == {"a time": {"value": kept, "unit": "s", "least": least, "most": most}}


def test_what_others_took_is_what_was_not_our_own() -> None:
    before = Reading(at_s=10.0, busy_s=100.0, stolen_s=1.0, own_s=50.0)
    after = Reading(at_s=20.0, busy_s=118.0, stolen_s=1.5, own_s=60.0)
    assert between(before, after, cores=2) == (10.0, 0.8, 0.025)
    assert between(before, before, cores=2) == (0.0, 0.0, 0.0)


PLANTED = """
import pytest

made = []

@pytest.fixture(scope="module")
def drawn():
    made.append(1)
    return len(made)

@pytest.mark.measured
def test_better_at_second_sight(drawn, record_property):
    record_property("figure", drawn)
    assert drawn >= 2

@pytest.mark.measured
def test_never_right(drawn):
    assert drawn > 100

@pytest.mark.measured
def test_right(figure):
    figure("a time", 0.2, unit="s", most=0.3)

@pytest.mark.measured
def test_skipped():
    pytest.skip("needs root")

@pytest.mark.measured
@pytest.mark.parametrize("outcome", ["holds", "does not hold", "cannot tell now"])
def test_said(outcome, record_property):
    record_property("decided", outcome)
    if outcome == "does not hold":
        pytest.fail("too slow")
    if outcome == "cannot tell now":
        pytest.skip("too wide")

@pytest.fixture
def broken():
    yield
    raise RuntimeError("at the end")

@pytest.mark.measured
def test_said_too_early(broken, record_property):
    record_property("decided", "holds")

def test_of_the_gate():
    raise AssertionError
"""
OF_THE_GATE = """
def test_it(figure):
    pass
"""


def copied(folder: Path, module: str) -> None:
    """Copy what measures, beside one module of tests."""
    for path in TESTS.glob("*.py"):
        (folder / path.name).write_text(path.read_text())
    (folder / "unit").mkdir()
    (folder / "unit" / "test_planted.py").write_text(module)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  measured\ntimeout = 60\n")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, "unit"]
    # where these tests must run, those that they plant may still be skipped
    environment = {name: value for name, value in os.environ.items() if name != "PACELINE_MUST_RUN"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_test_of_the_gate_may_not_hold_a_figure_to_bounds(tmp_path: Path) -> None:
    copied(tmp_path, OF_THE_GATE)
    done = run(tmp_path, "--suite=gate")
    assert done.returncode == 1
    assert "a figure is measured" in done.stdout


@pytest.mark.parametrize("others", [0.0, 0.9], ids=["quiet", "busy"])
def test_what_was_found_is_written_and_only_what_does_not_hold_is_red(others: float, tmp_path: Path) -> None:
    copied(tmp_path, PLANTED)
    with (tmp_path / "measuring.py").open("a") as file:
        file.write(f"\n\ndef between(before, after, cores):\n    return 3.0, {others}, 0.0\n")
    done = run(tmp_path, "--suite=measured", "--outcomes=found/it.json")
    found = json.loads((tmp_path / "found" / "it.json").read_text())
    read = read_health([tmp_path / "found" / "it.json"])
    assert read.health is not None, read.problems
    assert {name: one.outcome for name, one in read.health.outcomes.items()} == {
        name: one["outcome"] for name, one in found["outcomes"].items()
    }
    outcomes = {name.split("::test_")[1]: one for name, one in found["outcomes"].items()}
    assert {name: one["outcome"] for name, one in outcomes.items()} == {
        "better_at_second_sight": HOLDS,
        "never_right": CANNOT_TELL if others else FAILS,
        "right": HOLDS,
        "skipped": CANNOT_TELL,
        "said[holds]": HOLDS,
        "said[does not hold]": FAILS,
        "said[cannot tell now]": CANNOT_TELL,
        "said_too_early": CANNOT_TELL if others else FAILS,
    }
    figures = {"a time": {"value": 0.2, "unit": "s", "least": None, "most": 0.3}}
    assert outcomes["right"]["tries"][0]["figures"] == figures
    assert outcomes["skipped"]["tries"][0]["reason"] == "Skipped: needs root"
    assert all(len(outcomes[f"said[{outcome}]"]["tries"]) == 1 for outcome in (HOLDS, FAILS, CANNOT_TELL))
    second = outcomes["better_at_second_sight"]["tries"]
    assert [(t["passed"], t["figures"]) for t in second] == [(False, {"figure": 1}), (True, {"figure": 2})]
    assert len(outcomes["never_right"]["tries"]) == (3 if others else 2)
    assert "assert 2 > 100" in outcomes["never_right"]["tries"][0]["reason"]
    assert found["machine"]["cores"] >= 1
    assert done.returncode == 1
    assert f"{1 if others else 2} failed" in done.stdout, done.stdout
    told = "1 does not hold, 4 cannot tell now" if others else "3 does not hold, 2 cannot tell now"
    assert f"3 holds, {told}" in done.stdout
