"""When a record that was measured again counts as the same, as different, or as open."""

from __future__ import annotations

from typing import Any

import pytest
import record_factory as factory

from paceline.analysis.reproduction import cannot, judge_reproduction, same_code
from paceline.records.store.folder import RunRecord

STEADY = [1.00, 1.01, 0.99, 1.02, 1.00]


def record(
    ring: float | None = 1.0, native: float = 1.0, *, noise: float = 1.0, status: str = "", **changes: Any
) -> RunRecord:
    run = factory.make_run(**changes)
    lines = factory.launches(run, "native", [native * v for v in STEADY])
    if ring is not None:
        shuffled = STEADY[2:] + STEADY[:2]
        lines += factory.launches(run, "ring", [ring * native * (1 + (v - 1) * noise) for v in shuffled])
    if status:
        lines.append(factory.measurement(run, "ring", 0, [], status=status, reason="why"))
    return factory.in_memory(run, lines)


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({}, "equivalent"),
        ({"ring": 1.2}, "different"),
        ({"ring": 0.8}, "different"),
        ({"native": 1.5}, "equivalent"),
        ({"noise": 20.0}, "inconclusive"),
        ({"ring": 1.2, "noise": 20.0}, "inconclusive"),
        ({"host_class": "another machine"}, "cannot"),
        ({"ring": None, "status": "crashed"}, "different"),
        ({"ring": None, "status": "incorrect"}, "different"),
        ({"ring": None, "status": "infrastructure"}, "inconclusive"),
    ],
)
def test_the_answer_is_about_ratios_within_each_run(changes: dict[str, Any], answer: str) -> None:
    found = judge_reproduction(record(**changes), record())
    assert found.answer == answer
    assert f"verdict: {answer}" in found.text()
    assert bool(found.reasons) == (answer in ("different", "cannot"))


@pytest.mark.parametrize(("native", "answer"), [(1.0, "equivalent"), (1.2, "different")])
def test_a_baseline_alone_is_compared_by_its_times(native: float, answer: str) -> None:
    assert judge_reproduction(record(None, native), record(None)).answer == answer


def test_one_launch_says_nothing() -> None:
    run = factory.make_run()
    lines = factory.launches(run, "native", [1.0]) + factory.launches(run, "ring", [1.0])
    assert judge_reproduction(factory.in_memory(run, lines), record()).answer == "inconclusive"


def test_nothing_measured_names_why() -> None:
    run = factory.make_run()
    failed = factory.measurement(run, "native", 0, [], status="unsupported", reason="needs an accelerator")
    found = judge_reproduction(factory.in_memory(run, [failed]), record())
    assert found.text() == "verdict: cannot\n  native: unsupported: needs an accelerator"
    assert cannot("a", "b").reasons == ("a", "b")


@pytest.mark.parametrize(
    ("here", "same"),
    [
        ({"commit": "a", "dirty": False}, True),
        ({"commit": "b", "dirty": False}, False),
        ({"commit": "a", "dirty": True, "diff_sha256": "1"}, False),
        ({"commit": None, "dirty": None}, False),
    ],
)
def test_code_is_the_same_with_its_uncommitted_changes(here: dict[str, Any], same: bool) -> None:
    assert same_code({"commit": "a", "dirty": False}, here) is same


def test_no_commit_is_no_proof_of_equal_code() -> None:
    assert not same_code({"commit": None, "dirty": None}, {"commit": None, "dirty": None})
