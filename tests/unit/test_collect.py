"""What ranks say becomes record lines, and files that they leave go with the record: those of the job alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.base.errors import InfrastructureError, UserErrors
from paceline.drivers.collect import Collector
from paceline.drivers.execute import ARTIFACTS, collect_job, execute
from paceline.records.format.record import Event, Measurement
from paceline.records.format.record_file import files_beside
from paceline.records.store.folder import read_record
from paceline.spec import content
from paceline.spec.plans.plan import Plan, Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite

SUITE = """
suite: reasoning/example
version: 1
family: reasoning
description: Something is measured.
workload: {op: solve, questions: 10}
baseline: greedy
techniques: [greedy]
protocol: {launches: 1}
"""
HOST = {
    "event": "host",
    "host": {"cpu": "Example", "usable_cores": 2},
    "device": {"kind": "cpu"},
    "flags": {},
}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "suite.yaml").write_text(SUITE)
    suite = load_suite(tmp_path / "suite.yaml")
    return make_plan([suite], load_runner(content.find_runner("local-cpu")), Selection())


def result(plan: Plan, **changes: Any) -> dict[str, Any]:
    (block,) = plan.blocks
    return {
        "event": "result",
        "time_s": 1.0,
        "launch": 0,
        "block": block["block"],
        "label": "greedy",
        "status": "ok",
        "metrics": {"tokens_reordered": {"samples": [3.0]}},
        "correctness": {"passed": True},
        **changes,
    }


def test_a_file_that_goes_with_a_result_is_named_beside_the_record(plan: Plan) -> None:
    collector = Collector(plan, "run")
    (line,) = collector.lines(result(plan, artifacts={"traces": "traces-0.npz"}))
    assert isinstance(line, Measurement)
    assert line.artifacts == {"traces": "run/traces-0.npz"}
    assert collector.artifacts == {"traces-0.npz"}


@pytest.mark.parametrize("given", [{"traces": "../../x"}, {"traces": ".."}, {"traces": 3}, "abc", ["a"]])
def test_a_file_that_might_lie_anywhere_makes_the_result_invalid(plan: Plan, given: object) -> None:
    collector = Collector(plan, "run")
    said, line = collector.lines(result(plan, artifacts=given))
    assert isinstance(said, Event)
    assert said.kind == "unreadable"
    assert isinstance(line, Measurement)
    assert (line.status, line.artifacts) == ("invalid", None)
    assert collector.artifacts == set()


@pytest.mark.parametrize("kind", ["link", "missing", "file"])
def test_only_plain_files_of_the_job_come_with_its_record(plan: Plan, tmp_path: Path, kind: str) -> None:
    job, results, secret = tmp_path / "job", tmp_path / "results", tmp_path / "secret"
    (job / ARTIFACTS).mkdir(parents=True)
    secret.write_text("a key")
    if kind == "link":
        (job / ARTIFACTS / "traces-0.npz").symlink_to(secret)
    elif kind == "file":
        (job / ARTIFACTS / "traces-0.npz").write_text("traces")
    events = [HOST, result(plan, artifacts={"traces": "traces-0.npz"})]
    (job / "events-0.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    facts = {
        "run_id": "01a20434-22cd-787a-affa-a6f4f5489b4e",
        "started": "2026-11-22T17:00:00.000Z",
        "argv": [],
        "suites": [],
        "code": {},
        "techniques": {},
    }
    outcome = collect_job(job, plan, facts, results)
    assert outcome.path is not None
    beside = files_beside(outcome.path)
    noted = [e for e in read_record(outcome.path).events if e.kind == "unreadable"]
    if kind == "file":
        assert [p.read_text() for p in beside.iterdir()] == ["traces"]
        assert not noted
    else:
        assert not beside.exists()
        assert [e.data["why"] for e in noted] == ["the job has no file artifacts/traces-0.npz"]


@pytest.mark.parametrize("address", ["http://me:secret@host/v1", "http://host/v1?key=secret"])
def test_an_address_that_holds_a_key_is_refused(address: str, tmp_path: Path) -> None:
    text = SUITE.replace(
        "op: solve", f"op: solve, problems: 'gsm8k:/data/gsm8k.jsonl', model: 'openai:{address}#tiny'"
    )
    (tmp_path / "keys.yaml").write_text(text)
    with pytest.raises(UserErrors, match="holds a key or a query") as caught:
        load_suite(tmp_path / "keys.yaml")
    assert "secret" not in str(caught.value)


class DeadLauncher:
    """A launcher that has ended by itself, as a driver and as its execution."""

    def __init__(self, code: int, log: str) -> None:
        self._code, self._log = code, log

    def start(self, job: Path) -> DeadLauncher:
        return self

    def poll(self) -> int:
        return self._code

    def stop(self) -> None:
        pass

    def log(self) -> str:
        return self._log


@pytest.mark.parametrize(
    ("code", "log", "said"),
    [
        (
            1,
            'Traceback (most recent call last):\n  File "x"\nKeyError: 7\n',
            "ended with exit code 1: KeyError: 7;",
        ),
        (-9, "", "was killed by signal 9 (SIGKILL); 1 result is missing"),
        (127, "run.sh: 9: exec: python3: not found", "exit code 127: run.sh: 9: exec: python3: not found; 1"),
    ],
)
def test_the_first_line_about_a_dead_launcher_says_why_it_died(
    code: int, log: str, said: str, plan: Plan, tmp_path: Path
) -> None:
    facts = {"run_id": "0193-1", "started": "2026-11-21T07:00:00.000Z"}
    with pytest.raises(InfrastructureError) as found:
        execute(tmp_path, plan, facts, tmp_path / "store", DeadLauncher(code, log), lambda event: None)
    assert said in str(found.value).splitlines()[0]
