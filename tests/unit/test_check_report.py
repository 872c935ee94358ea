"""What ``paceline check`` prints of results, and when it says that a technique conforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from paceline.base.errors import UserError, UserErrors
from paceline.cli import application
from paceline.cli.authoring.check import report
from paceline.workflows.conformance import ConformanceResult, problems_of


def result(status: str = "ok", reason: str | None = None, **changes: Any) -> ConformanceResult:
    given = {
        "technique": "mine",
        "operation": "all_reduce",
        "params": {"op": "all_reduce", "ranks": 2, "dtype": "float32", "link": "loopback"},
        "correctness": {"oracle": "float64", "gate_checks": 36, "timed_calls_verified": 4}
        if status == "ok"
        else {},
    }
    return ConformanceResult(status=status, reason=reason, **{**given, **changes})


def at(ranks: int) -> dict[str, Any]:
    return {"op": "all_reduce", "ranks": ranks, "dtype": "float32", "link": "loopback"}


def test_what_was_checked_is_said() -> None:
    counted = {"measured": {"wire_bytes": 8.0, "latency": 1.0}, "predicted": {"wire_bytes": 8.0}}
    found = [result(**counted), result(params=at(4), **counted)]
    assert problems_of(found) == []
    assert report(found) == [
        "mine: conforms",
        "  all_reduce: 2 of 2 points passed",
        "    points: ranks 2, 4",
        "    oracle: float64 (72 checks by the gate, 8 timed calls verified)",
        "    counted and compared with cost(): wire_bytes",
    ]


def test_a_wrong_result_is_named_with_its_points_and_reason() -> None:
    wrong = [result("incorrect", "1 of 8 elements differ", params=at(n)) for n in (2, 3, 4, 5)]
    found = [result(), *wrong]
    assert len(problems_of(found)) == 4
    lines = report(found)
    assert lines[0] == "mine: does not conform"
    assert "    failed at ranks=2 | ranks=3 | ranks=4 | 1 more: incorrect: 1 of 8 elements differ" in lines


def test_counts_that_are_not_those_of_cost_do_not_conform() -> None:
    found = [result(measured={"messages": 4.0}, predicted={"messages": 6.0})]
    assert "messages is 4.0000, formula 6.0000" in problems_of(found)[0]
    assert report(found)[0] == "mine: does not conform"
    assert "  all_reduce: 0 of 1 point passed" in report(found)


def test_points_that_it_does_not_support_are_no_fault_but_named() -> None:
    found = [result(), result("unsupported", "needs a power of two", params=at(3))]
    assert problems_of(found) == []
    assert "    not run at ranks=3: needs a power of two" in report(found)


def test_a_technique_that_ran_at_no_point_does_not_conform() -> None:
    found = [result("unsupported", "needs the package triton")]
    assert problems_of(found) == ["mine all_reduce: it ran at no point: needs the package triton"]
    assert report(found)[-1] == "    failed: it ran at no point, so nothing is known of it"


def test_one_operation_that_ran_nowhere_is_not_hidden_by_another() -> None:
    found = [result(), result("unsupported", "needs cuda", operation="broadcast")]
    assert problems_of(found) == ["mine broadcast: it ran at no point: needs cuda"]


def test_a_crash_shows_the_end_of_its_traceback_without_the_folder_that_is_gone() -> None:
    where = 'File "/tmp/paceline-check-x/results/jobs/01a2/user/mine.py", line 7, in run'
    found = [result("crashed", "RuntimeError: no idea", detail=f"first\n  {where}\nRuntimeError: no idea")]
    assert report(found)[-2:] == [
        '      |   File "user/mine.py", line 7, in run',
        "      | RuntimeError: no idea",
    ]


def test_what_ranks_would_refuse_is_said_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import socket\nfrom paceline import technique\n\n\n"
        '@technique(name="my-lab/mine", family="collectives", implements=("all_reduce",), summary="x")\n'
        "class Mine:\n    pass\n",
        encoding="utf-8",
    )
    said = CliRunner().invoke(application, ["check", str(file)]).exception
    assert isinstance(said, UserErrors) and f"{file}:1: the technique imports socket" in str(said)


def test_an_unknown_name_is_an_error_in_the_words_of_the_command_line() -> None:
    said = CliRunner().invoke(application, ["check", "ringg"]).exception
    assert isinstance(said, UserError)
    assert "did you mean 'ring'" in str(said) and "such as ringg.py" in str(said)
    assert said.fix == "paceline list techniques"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_no_technique_is_a_usage_error(options: list[str]) -> None:
    assert CliRunner().invoke(application, ["check", *options]).exit_code == 2
