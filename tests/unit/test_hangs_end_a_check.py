"""A technique that hangs is told at once and costs one limit: its other points are skipped, unless asked otherwise."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from paceline.cli import application
from paceline.cli.authoring import check
from paceline.drivers.progress import RunProgress
from paceline.spec import content
from paceline.spec.plans.plan import Plan, Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite
from paceline.worker.events import EventLog
from paceline.worker.launch import Launcher
from paceline.worker.launches.attempt import Ending
from paceline.worker.launches.watchdog import RankReport
from paceline.worker.processes import fork_server
from paceline.worker.ranks.session import CaseError, Session

REASON = "a call in stage 'gate' did not end within 60 s: rank 0 waits; last operation: recv"


def plan_of(**asked: Any) -> Plan:
    suite = load_suite(content.find_suite("collectives/all-reduce"))
    selection = Selection(techniques=("native", "ring", "tree"), launches=1, seed=1, **asked)
    return make_plan([suite], load_runner(content.find_runner("local-cpu")), selection)


class Injected(Launcher):
    """Starts no ranks: every case passes, but for some techniques, at which the group stands still."""

    def __init__(self, folder: Path, hanging: Collection[str]) -> None:
        super().__init__(folder)
        self.hanging = hanging
        self.num_hangs = 0

    def _on_all_nodes(self, group: dict[str, Any], launch: int, attempt: int) -> Ending:
        work = self.job.folder / "attempts" / f"{group['group']}-{launch}-{attempt}.json"
        log = EventLog(self.job.folder / "events-0.jsonl", launch=launch, attempt=attempt, rank=0)
        for block in json.loads(work.read_text())["blocks"]:
            for case in block["cases"]:
                if case["label"] in self.hanging:
                    self.num_hangs += 1
                    return Ending(
                        hang_limit_s=60.0, reports=[stuck(f"{block['block']}|{case['label']}|gate")]
                    )
                log.emit("result", block=block["block"], label=case["label"], case_id=case["case_id"])
        return Ending()


def stuck(context: str) -> RankReport:
    return RankReport(
        rank=0,
        state="waits",
        context=context,
        call=1,
        operations=1,
        call_operations=1,
        in_operation=True,
        last_operation="recv",
        silent_s=60.0,
    )


def run(
    plan: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch, *hanging: str
) -> tuple[Injected, list[dict[str, Any]]]:
    """Run a job to its end; return its launcher, and its events of cases."""
    folder.mkdir(exist_ok=True)
    (folder / "plan.json").write_text(plan.text)
    monkeypatch.setattr(fork_server, "begin", lambda plan: None)
    launcher = Injected(folder, hanging)
    launcher.run()
    lines = [line for path in folder.glob("events-*.jsonl") for line in path.read_text().splitlines()]
    events = [json.loads(line) for line in lines]
    return launcher, [e for e in events if e["event"] in ("result", "case_failed")]


def test_after_one_hang_the_rest_of_a_technique_is_skipped_and_all_others_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(skip_after_hang=True)
    num_points = len(plan.blocks)
    assert num_points > 4 and len(plan.data["groups"]) > 1, "in several process groups"
    launcher, events = run(plan, tmp_path, monkeypatch, "ring")
    assert launcher.num_hangs == 1
    own = [e for e in events if e["label"] == "ring"]
    assert sorted(e["status"] for e in own) == ["skipped"] * (num_points - 1) + ["timeout"]
    (why,) = {e["reason"] for e in own if e["status"] == "skipped"}
    assert why.startswith(
        "it hung at another point, and --keep-going tries this one too: a call in stage 'gate'"
    )
    assert [e["event"] for e in events if e["label"] != "ring"] == ["result"] * 2 * num_points


def test_two_that_hang_cost_a_limit_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher, events = run(plan_of(skip_after_hang=True), tmp_path, monkeypatch, "ring", "tree")
    assert launcher.num_hangs == 2
    assert {e["label"] for e in events if e["event"] == "result"} == {"native"}


def test_a_job_that_is_taken_up_again_knows_of_the_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(skip_after_hang=True)
    log = EventLog(tmp_path / "events-launcher.jsonl", launch=-1, attempt=-1, rank=-1)
    block = plan.blocks[0]
    (ring,) = [c for c in block["cases"] if c["label"] == "ring"]
    facts = {"block": block["block"], "label": "ring", "case_id": ring["case_id"], "launch": 0}
    log.emit("case_failed", **facts, status="timeout", reason=REASON, detail=None, quarantine=True)
    launcher, _ = run(plan, tmp_path, monkeypatch, "ring")
    assert launcher.num_hangs == 0


def test_one_that_is_ended_within_its_group_is_skipped_by_the_ranks_and_told_by_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kernels in a sandbox: the rank lives on, and has the next blocks before it."""
    num_hangs = 0

    def of_group(self: Injected, group: dict[str, Any], launch: int, attempt: int) -> Ending:
        nonlocal num_hangs
        work = self.job.folder / "attempts" / f"{group['group']}-{launch}-{attempt}.json"
        log = EventLog(self.job.folder / "events-0.jsonl", launch=launch, attempt=attempt, rank=0)
        alone = SimpleNamespace(gather_text=lambda text: [text])
        session = SimpleNamespace(
            rank=0,
            control=alone,
            events=log,
            hung=set(),
            skip_after_hang=self.job.plan.get("skip_after_hang"),
        )
        session.emit_result = partial(Session.emit_result, session)
        for planned in json.loads(work.read_text())["blocks"]:
            data = Session.without_hung(session, planned)  # type: ignore[arg-type]
            for given in data["cases"]:
                block, case = SimpleNamespace(block=data["block"]), SimpleNamespace(**given)
                if case.label == "ring":
                    num_hangs += 1
                    Session.emit_failure(session, block, case, CaseError("timeout", REASON))  # type: ignore[arg-type]
                else:
                    session.emit_result(block, case, {"status": "ok"})
        return Ending()

    monkeypatch.setattr(Injected, "_on_all_nodes", of_group)
    plan = plan_of(skip_after_hang=True)
    _, events = run(plan, tmp_path / "skipping", monkeypatch)
    assert num_hangs == 1
    told = sorted(e["status"] for e in events if e["label"] == "ring")
    assert told == ["skipped"] * (len(plan.blocks) - 1) + ["timeout"]
    assert sum(e["event"] == "result" and e["label"] != "ring" for e in events) == 2 * len(plan.blocks)
    num_hangs = 0
    run(plan_of(), tmp_path / "going", monkeypatch)
    assert num_hangs == len(plan.blocks)


def test_ranks_agree_on_who_hung() -> None:
    def seen(hung: set[str], told: list[str], *, skips: bool = True) -> list[str]:
        control = SimpleNamespace(gather_text=lambda text: [text, *told])
        session = SimpleNamespace(control=control, hung=hung, skip_after_hang=skips)
        data = {"cases": [{"label": label} for label in ("a", "b", "c")]}
        return [c["label"] for c in Session.without_hung(session, data)["cases"]]  # type: ignore[arg-type]

    assert seen(set(), [""]) == ["a", "b", "c"]
    assert seen({"a"}, ["b"]) == seen({"b"}, ["a"]) == ["c"]
    assert seen(set(), ["a\0b"]) == ["c"]
    assert seen({"a"}, ["b"], skips=False) == ["a", "b", "c"]


def test_asked_to_keep_going_every_point_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    assert "skip_after_hang" not in plan.data
    launcher, _ = run(plan, tmp_path, monkeypatch, "ring")
    assert launcher.num_hangs == len(plan.blocks)


@pytest.mark.parametrize("skips", [True, False])
def test_a_hang_is_told_at_once(skips: bool, capfd: pytest.CaptureFixture[str]) -> None:
    plan = plan_of(skip_after_hang=skips)
    block = plan.blocks[0]
    event = {"event": "case_failed", "block": block["block"], "label": "ring", "status": "timeout"}
    with RunProgress(plan) as shown:
        shown.event({**event, "reason": f"{REASON}\u001b[2J"})
        said = capfd.readouterr().err
        shown.event({**event, "status": "skipped", "reason": "it hung at another point"})
        shown.event({**event, "status": "incorrect", "reason": "wrong"})
    assert capfd.readouterr().err == ""
    size = f"size_bytes={block['params']['size_bytes']}"
    assert said.startswith("ring hung at ") and size in said and f": {REASON}\\u001b[2J" in said
    assert ("; its other points are skipped (--keep-going tries them)" in said) is skips
    with RunProgress(plan, quiet=True) as silent:
        silent.event({**event, "reason": REASON})
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("options", [[], ["--keep-going"]])
def test_the_option_reaches_the_plan(options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(check, "run_conformance", lambda techniques, **given: asked.update(given) or [])
    monkeypatch.setattr(check, "occupied", lambda profile, **how: nullcontext())
    assert CliRunner().invoke(application, ["check", "ring", *options], catch_exceptions=False).exit_code == 0
    assert asked["keep_going"] is bool(options)
