"""A measured test holds, does not hold, or cannot be told on a machine on which others compute."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from measuring import CANNOT_TELL, FAILS, HOLDS, Reading, Try, again, between, outcome_of

TESTS = Path(__file__).parents[1]


def one(passed: bool, others: float = 0.0, stolen: float = 0.0) -> Try:
    return Try(passed=passed, seconds=3.0, others_cores=others, stolen=stolen)


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
    ],
)
def test_a_failure_is_believed_twice_on_a_quiet_machine(tries: list[Try], outcome: str, more: bool) -> None:
    assert outcome_of(tries) == outcome
    assert again(tries) is more


def test_what_others_took_is_what_was_not_our_own() -> None:
    before = Reading(at_s=10.0, busy_s=100.0, stolen_s=1.0, own_s=50.0)
    after = Reading(at_s=20.0, busy_s=118.0, stolen_s=1.5, own_s=60.0)
    assert between(before, after, cores=2) == (10.0, 0.8, 0.025)
    assert between(before, before, cores=2) == (0.0, 0.0, 0.0)


PLANTED = """
import pytest

made = []

@pytest.fixture(scope="module")
def figure():
    made.append(1)
    return len(made)

@pytest.mark.measured
def test_better_at_second_sight(figure, record_property):
    record_property("figure", figure)
    assert figure >= 2

@pytest.mark.measured
def test_never_right(figure):
    assert figure > 100

@pytest.mark.measured
def test_right():
    pass

def test_of_the_gate():
    raise AssertionError
"""


@pytest.mark.parametrize("others", [0.0, 0.9], ids=["quiet", "busy"])
def test_what_was_found_is_written_and_only_what_does_not_hold_is_red(others: float, tmp_path: Path) -> None:
    for path in TESTS.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    with (tmp_path / "measuring.py").open("a") as file:
        file.write(f"\n\ndef between(before, after, cores):\n    return 3.0, {others}, 0.0\n")
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_planted.py").write_text(PLANTED)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  measured\ntimeout = 60\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--suite=measured",
        "--outcomes=found/it.json",
    ]
    done = subprocess.run([*command, "unit"], cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads((tmp_path / "found" / "it.json").read_text())
    outcomes = {name.split("::test_")[1]: one for name, one in found["outcomes"].items()}
    assert {name: one["outcome"] for name, one in outcomes.items()} == {
        "better_at_second_sight": HOLDS,
        "never_right": CANNOT_TELL if others else FAILS,
        "right": HOLDS,
    }
    second = outcomes["better_at_second_sight"]["tries"]
    assert [(t["passed"], t["figures"]) for t in second] == [(False, {"figure": 1}), (True, {"figure": 2})]
    assert len(outcomes["never_right"]["tries"]) == (3 if others else 2)
    assert "assert 2 > 100" in outcomes["never_right"]["tries"][0]["reason"]
    assert found["machine"]["cores"] >= 1
    assert done.returncode == (0 if others else 1), done.stdout
    told = (
        "2 holds, 0 does not hold, 1 cannot tell now"
        if others
        else "2 holds, 1 does not hold, 0 cannot tell now"
    )
    assert told in done.stdout
