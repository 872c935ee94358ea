"""Commands in turn, in a real run: what is measured of them, and what becomes of those that misbehave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import paceline_commands
import pytest
import seeds
import yaml
from click.testing import CliRunner, Result

from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.base.errors import EXIT_INCORRECT, EXIT_INFRASTRUCTURE, EXIT_OK
from paceline.cli import application
from paceline.records.store.folder import RunRecord, read_record, record_paths

pytestmark = pytest.mark.timeout(300)
GOOD = 'python3 -I -S -c \'print("loss 2.5"); print("{input}")\''
CASES: dict[str, dict[str, Any]] = {
    "good": {"check": "grep -qx seven", "metrics": "loss = loss ([0-9.]+)"},
    "unread": {"check": "grep -qx seven", "metrics": "loss = accuracy ([0-9.]+)"},
    "unchecked": {},
    "exits": {"command": "sh -c 'echo no such data >&2; exit 1'"},
    "absent": {"command": "no-such-program"},
    "hangs": {"command": "sleep 987655"},
    "daemon": {"command": "sh -c 'setsid sleep 987656 &'"},
    "floods": {"command": "head -c 300000000 /dev/zero", "check": "test -n yes"},
    "wrong": {"check": "grep -qx eight"},
    "unbuilt": {"build": "sh -c 'echo cc: no input files >&2; exit 4'"},
    "unquoted": {"command": "echo 'x"},
}
REASONS = {
    "exits": ("crashed", "it exited with 1: no such data"),
    "absent": ("crashed", "it: 'no-such-program' was not found on PATH"),
    "hangs": ("timeout", "it did not end within 5 s and printed nothing"),
    "daemon": ("refused", "left processes behind (sleep), which were ended"),
    "wrong": ("incorrect", "its check exited with 1"),
    "unbuilt": ("crashed", "its build exited with 4: cc: no input files"),
    "unquoted": ("crashed", 'cannot be made: "echo \'x" cannot be split into words'),
}


def invoke(*arguments: object) -> Result:
    with paceline_commands.fixed_plans(seeds.current()):
        return CliRunner().invoke(
            application, [str(a) for a in (*arguments, "--allow-concurrent", "--quiet")]
        )


@pytest.fixture(scope="module")
def misbehaving(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, RunRecord]:
    """Run commands of every kind in one block."""
    folder = tmp_path_factory.mktemp("programs")
    suite = {
        "suite": "programs/misbehaving",
        "version": 1,
        "family": "programs",
        "description": "Some of these are wrong.",
        "workload": {"op": "execute", "input": "seven"},
        "baseline": "good",
        "techniques": [
            {"technique": "command", "as": name, "options": {"command": GOOD, **options}}
            for name, options in CASES.items()
        ],
        "protocol": {
            **{"launches": 2, "warmup": "none", "max_seconds": 0.1, "min_samples": 3, "timeout": "5s"}
        },
        "metrics": {"wall_time": {}, "reported_loss": {"diagnostic": True}},
    }
    path = folder / "misbehaving.yaml"
    path.write_text(yaml.safe_dump(suite))
    result = invoke("run", path, "--results", folder / "store")
    (record,) = map(read_record, record_paths(folder / "store"))
    return result, record


@pytest.mark.parametrize("label", sorted(REASONS))
def test_a_command_that_misbehaves_costs_its_own_case_and_says_why(
    label: str, misbehaving: tuple[Result, RunRecord]
) -> None:
    found = [m for m in misbehaving[1].measurements if m.label == label]
    status, reason = REASONS[label]
    assert (found[0].status, found[0].launch) == (status, 0)
    assert reason in (found[0].reason or "")
    # it is not tried again, and does not hang again, in each launch
    assert [(m.status, m.launch) for m in found[1:]] == [("skipped", 1)]


def test_others_are_measured_beside_those_that_misbehave(misbehaving: tuple[Result, RunRecord]) -> None:
    result, record = misbehaving
    assert result.exit_code == EXIT_INCORRECT, result.output
    (point,) = points_of(record)
    assert set(point.labels) == {"good", "unread", "unchecked", "floods"}
    assert len(point.cells["good", "wall_time"].values) == 2
    assert {c.label for c in compare_points([point])} == {"unread", "unchecked", "floods"}
    flooded = next(m for m in record.measurements if m.label == "floods" and m.accounting)
    assert dict(flooded.accounting or {})["printed_bytes"] == 300_000_000


def test_what_a_program_reports_is_marked_and_what_it_does_not_report_is_absent(
    misbehaving: tuple[Result, RunRecord],
) -> None:
    lines = {(m.label, m.metric.name): m for m in misbehaving[1].measurements if m.launch == 0}
    reported = lines["good", "reported_loss"]
    assert reported.value == 2.5 and reported.flags == ["self-reported"]
    assert lines["good", "wall_time"].flags == []
    unread = lines["unread", "wall_time"]
    assert unread.status == "ok" and ("unread", "reported_loss") not in lines
    assert "matches nothing that it printed" in (unread.absent or {})["reported_loss"]


def test_without_a_check_gate_and_grade_say_so(misbehaving: tuple[Result, RunRecord]) -> None:
    (point,) = points_of(misbehaving[1])
    found = next(m for m in misbehaving[1].measurements if m.label == "unchecked" and m.correctness)
    assert "no check was given" in (found.correctness or {})["oracle"]
    assert "unchecked" in found.flags and point.grade("unchecked", "wall_time") == "C"
    assert "unchecked: the exit status alone" in misbehaving[0].output


def test_commands_are_timed_without_a_file_and_the_record_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = "import sys, time, json\ntime.sleep(float(sys.argv[1]))\nprint(json.dumps({'rate': 3}))\n"
    Path("nap.py").write_text(script)
    result = invoke(
        *("time", "python3 -I nap.py 0.02", "python3 -I nap.py 0.5", "--name", "short", "--name", "long"),
        *(
            "--metric",
            "items_per_s=json:rate",
            "--check",
            "grep -q rate",
            "--results",
            "store",
            "--launches",
            3,
        ),
    )
    assert result.exit_code == EXIT_OK, result.output
    for word in ("short", "long", "× baseline", "reported_items_per_s"):
        assert word in result.output
    assert "series are self-reported" in result.output
    (path,) = Path("store/suites/programs").iterdir()
    (record,) = map(read_record, record_paths(Path("store")))
    assert record.run.suites[0]["suite"] == f"programs/{path.stem}"
    (point,) = points_of(record)
    value = point.estimate("long", "wall_time").value - point.estimate("short", "wall_time").value
    assert value > 0.3  # 0.48, and what the start of Python differs by on a busy machine
    assert invoke_plain("validate", path).exit_code == EXIT_OK


def invoke_plain(*arguments: object) -> Result:
    return CliRunner().invoke(application, [str(a) for a in arguments])


def test_a_metric_that_no_output_has_is_a_line_and_a_code_and_the_times_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(
        *(
            "time",
            "echo one | cat",
            "--shell",
            "--metric",
            "loss=loss ([0-9]+)",
            "--results",
            "store",
            "--json",
        ),
        *("--launches", 1),
    )
    assert result.exit_code == EXIT_INFRASTRUCTURE, result.output
    assert (
        "echo-one-cat: reported_loss has no value: the pattern 'loss ([0-9]+)' matches nothing"
        in result.stderr
    )
    assert "starting /bin/sh takes" in result.stderr
    (record,) = map(read_record, record_paths(Path("store")))
    assert json.loads(result.stdout)["statuses"] == {"ok": 1}
    assert {m.metric.name for m in record.measurements} >= {"wall_time", "cpu_time"}
