"""The gate: which run is the baseline, what counts as worse, and the exit code of every outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import record_factory as factory
from click.testing import CliRunner
from test_claims import claim

from paceline.analysis.gate import judge_run, set_baseline, waivers
from paceline.base.errors import (
    EXIT_CODES,
    EXIT_INCOMPARABLE,
    EXIT_INCONCLUSIVE,
    EXIT_INCORRECT,
    EXIT_OK,
    EXIT_REGRESSION,
    EXIT_USAGE,
    IncomparableError,
    PacelineError,
    UserError,
)
from paceline.cli import application
from paceline.records.format.record import Event
from paceline.records.format.record_file import run_id_of
from paceline.records.identity import utc
from paceline.records.store.folder import RunRecord, load
from paceline.records.store.integrity import append_event

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
    assert sorted(EXIT_CODES) == [*range(7), 70, 130, 141]


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
    first, second, third, current = (run_id_of(factory.simple(tmp_path)) for _ in range(4))
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
        set_baseline(loaded, loaded.find(run_id_of(path)))
    assert caught.value.fix == "paceline store baseline RUN, or --against=RUN"


def called(*arguments: str, root: Path) -> tuple[int, str]:
    """Return the exit code of a command, and what it printed or why it ended."""
    ended = CliRunner().invoke(application, [*arguments, "--results", str(root)])
    if isinstance(ended.exception, PacelineError):
        return ended.exception.exit_code, str(ended.exception)
    return ended.exit_code, ended.stdout


def gate(root: Path, *arguments: str) -> tuple[int, Any]:
    code, said = called("gate", *arguments, "--json", root=root)
    return code, json.loads(said) if said.startswith("{") else said


def test_the_command_ends_with_the_code_of_its_decision(tmp_path: Path) -> None:
    written = {}
    for name, given in (
        ("base", BASE),
        ("slow", record(1.5)),
        ("elsewhere", record(host_class="Another CPU")),
    ):
        written[name] = run_id_of(factory.write(tmp_path, given.run, given.measurements))
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


def waive(root: Path, **changes: Any) -> None:
    data = {
        "suite": "collectives/example",
        "technique": "ring",
        "metric": None,
        "claim": None,
        "reason": "known",
        "until": "2030-01-31",
    }
    append_event(root, Event(kind="waiver", at=utc(), data=data | changes))


ACCEPTED: list[tuple[dict[str, Any], str, bool]] = [
    ({}, "2030-01-31", True),
    ({}, "2030-02-01", False),
    ({"metric": "latency"}, "2030-01-31", True),
    ({"metric": "wire_bytes"}, "2030-01-31", False),
    ({"claim": "some"}, "2030-01-31", False),
    ({"technique": "native"}, "2030-01-31", False),
    ({"suite": "collectives/other"}, "2030-01-31", False),
    ({"reason": None}, "2030-01-31", False),
]


@pytest.mark.parametrize(("changes", "today", "accepted"), ACCEPTED)
def test_a_waiver_accepts_the_regression_that_it_names_until_its_day(
    tmp_path: Path, changes: dict[str, Any], today: str, accepted: bool
) -> None:
    waive(tmp_path, **changes)
    decision = judge_run(record(1.5), BASE, waivers=waivers(load([tmp_path]), today))
    assert decision.exit_code(strict=False) == (EXIT_OK if accepted else EXIT_REGRESSION)
    assert len(decision.waived) == int(accepted)


def test_a_waiver_accepts_a_lost_result_or_a_refuted_claim_and_never_a_wrong_one(tmp_path: Path) -> None:
    waive(tmp_path)
    waive(tmp_path, technique="tree")
    held = waivers(load([tmp_path]), "2030-01-01")
    run = factory.make_run()
    alone = factory.in_memory(run, factory.launches(run, "native", [1.0] * 5))
    assert judge_run(alone, BASE, waivers=held).exit_code(strict=False) == EXIT_OK
    assert judge_run(record(claims=[REFUTED]), BASE, waivers=held).exit_code(strict=False) == EXIT_OK
    wrong = judge_run(record(status="incorrect"), BASE, waivers=held)
    assert wrong.exit_code(strict=False) == EXIT_INCORRECT


def test_waive_and_gate_on_the_command_line(tmp_path: Path) -> None:
    base = run_id_of(factory.write(tmp_path, BASE.run, BASE.measurements))
    slow = record(1.5)
    factory.write(tmp_path, slow.run, slow.measurements)
    baseline_of(tmp_path, base)
    assert gate(tmp_path)[0] == EXIT_REGRESSION  # the latest run is not the correction
    command = ("store", "waive", "collectives/example")
    options = ("--reason", "new driver", "--until", "2999-12-31", "--technique")
    code, said = called(*command, *options, "rign", root=tmp_path)
    assert code == EXIT_USAGE and "'ring'" in said
    assert called(*command, *options, "ring", root=tmp_path)[0] == EXIT_OK
    code, shown = gate(tmp_path)
    assert code == EXIT_OK, shown
    assert shown["waived"] == ["collectives/example ring latency: accepted until 2999-12-31: new driver"]
