"""The gate: which run is the baseline, what counts as worse, and the exit code of every outcome."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import record_factory as factory
from test_claims import claim

from paceline.custody import append_event
from paceline.errors import (
    EXIT_CODES,
    EXIT_INCOMPARABLE,
    EXIT_INCONCLUSIVE,
    EXIT_INCORRECT,
    EXIT_OK,
    EXIT_REGRESSION,
    EXIT_USAGE,
    IncomparableError,
    UserError,
)
from paceline.gate import judge_run, set_baseline
from paceline.record import Event, utc
from paceline.store import RunRecord, load

STEADY = [1.00, 1.01, 0.99, 1.02, 1.00]


def record(
    ring: float = 1.0, *, status: str = "", noise: float = 1.0, claims: Any = (), **changes: Any
) -> RunRecord:
    run = factory.make_run(**changes)
    run = run.model_copy(
        update={"suites": [run.suites[0] | {"metrics": {"latency": 0.05}, "claims": list(claims)}]}
    )
    lines = factory.launches(run, "native", STEADY)
    lines += factory.launches(run, "ring", [ring * (1 + (v - 1) * noise) for v in STEADY])
    if status:
        lines.append(factory.measurement(run, "tree", 0, [], status=status, reason="wrong sum"))
    return factory.in_memory(run, lines)


BASE = record()
REFUTED = claim({"ratio_at_most": 0.5})
OUTCOMES: list[tuple[dict[str, Any], bool, int]] = [
    ({}, False, EXIT_OK),
    ({}, True, EXIT_OK),
    ({"ring": 1.5}, False, EXIT_REGRESSION),
    ({"ring": 0.5}, False, EXIT_OK),
    ({"ring": 1.03, "noise": 3.0}, True, EXIT_INCONCLUSIVE),
    ({"ring": 1.03, "noise": 3.0}, False, EXIT_OK),
    ({"noise": 30.0}, True, EXIT_INCONCLUSIVE),
    ({"claims": [REFUTED]}, False, EXIT_REGRESSION),
    ({"claims": [claim({"ratio_at_most": 2.0})]}, False, EXIT_OK),
    ({"status": "incorrect"}, False, EXIT_INCORRECT),
    ({"status": "refused"}, False, EXIT_INCORRECT),
    ({"status": "invalid", "ring": 1.5}, False, EXIT_INCORRECT),
    ({"status": "crashed"}, False, EXIT_OK),
    ({"status": "unsupported"}, True, EXIT_OK),
]


@pytest.mark.parametrize(("changes", "strict", "code"), OUTCOMES)
def test_the_exit_code_says_how_it_went(changes: dict[str, Any], strict: bool, code: int) -> None:
    decision = judge_run(record(**changes), BASE)
    assert decision.exit_code(strict=strict) == code


@pytest.mark.parametrize("status", ["crashed", "timeout", "out_of_memory"])
def test_what_was_measured_and_now_breaks_is_a_regression(status: str) -> None:
    run = factory.make_run()
    lines = factory.launches(run, "native", STEADY)
    lines.append(factory.measurement(run, "ring", 0, [], status=status, reason="rank 1 died"))
    decision = judge_run(factory.in_memory(run, lines), BASE)
    assert decision.lost == [f"collectives/example ring launch 0: {status}: rank 1 died"]
    assert decision.exit_code(strict=False) == EXIT_REGRESSION


def test_every_exit_code_is_documented() -> None:
    assert sorted(EXIT_CODES) == list(range(7))


def test_improvements_and_regressions_are_counted_side_by_side() -> None:
    decision = judge_run(record(1.5), BASE)
    assert [c.label for c in decision.worse] == ["ring"]
    assert [c.label for c in decision.equivalent] == ["native"]
    assert [c.label for c in judge_run(BASE, record(1.5)).better] == ["ring"]


def test_other_hardware_or_nothing_in_common_cannot_be_compared() -> None:
    with pytest.raises(IncomparableError, match="host classes differ"):
        judge_run(record(host_class="Another CPU"), BASE)
    run = factory.make_run()
    with pytest.raises(IncomparableError, match="share no series"):
        judge_run(factory.in_memory(run, factory.launches(run, "other", STEADY)), BASE)


def baseline_of(root: Path, run_id: str, **changes: Any) -> None:
    data = {
        "run_id": run_id,
        "suites": ["collectives/example"],
        "host_class": factory.HOST,
        "runner": "local-cpu",
    }
    append_event(root, Event(kind="baseline_set", at=utc(), run_id=run_id, data=data | changes))


def test_the_baseline_is_the_one_set_last_for_this_place(tmp_path: Path) -> None:
    first, second, third, current = (factory.simple(tmp_path).stem for _ in range(4))
    baseline_of(tmp_path, third)
    baseline_of(tmp_path, first)
    baseline_of(tmp_path, second, host_class="Another CPU")
    baseline_of(tmp_path, second, runner="netns-cpu")
    baseline_of(tmp_path, second, suites=["collectives/other"])
    loaded = load([tmp_path])
    assert set_baseline(loaded, loaded.find(current)).run_id == first


def test_a_missing_baseline_is_an_error_with_the_command_that_sets_it(tmp_path: Path) -> None:
    path = factory.simple(tmp_path)
    loaded = load([tmp_path])
    with pytest.raises(UserError, match="no baseline run is set") as caught:
        set_baseline(loaded, loaded.find(path.stem))
    assert caught.value.fix == "paceline store baseline RUN, or --against RUN"


def gate(root: Path, *arguments: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "paceline", "gate", *arguments, "--results", str(root), "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return result.returncode, json.loads(result.stdout) if result.stdout else result.stderr


def test_the_command_ends_with_the_code_of_its_decision(tmp_path: Path) -> None:
    written = {}
    for name, given in (
        ("base", BASE),
        ("slow", record(1.5)),
        ("elsewhere", record(host_class="Another CPU")),
    ):
        written[name] = factory.write(tmp_path, given.run, given.measurements).stem
    code, shown = gate(tmp_path, written["slow"])
    assert code == EXIT_USAGE, shown
    baseline_of(tmp_path, written["base"])
    code, shown = gate(tmp_path, written["slow"])
    assert (code, shown["exit_code"], shown["baseline"]) == (
        EXIT_REGRESSION,
        EXIT_REGRESSION,
        written["base"],
    )
    code, shown = gate(tmp_path, written["elsewhere"], "--against", written["base"])
    assert code == EXIT_INCOMPARABLE
    assert "host classes differ" in shown


def test_what_the_baseline_measured_and_this_run_did_not_try_is_lost() -> None:
    run = factory.make_run()
    decision = judge_run(factory.in_memory(run, factory.launches(run, "native", [1.0] * 5)), BASE)
    assert any("not tried by this one" in text for text in decision.lost)
    assert decision.exit_code(strict=False) == EXIT_REGRESSION
