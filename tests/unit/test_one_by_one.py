"""``paceline run --one-by-one``: each suite to its end before the next, in the order given, its table at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import paceline
from paceline.base.errors import InfrastructureError, UserError
from paceline.cli import application
from paceline.cli.measuring import run as command
from paceline.drivers.execute import Recorder
from paceline.drivers.measure import make_facts
from paceline.drivers.progress import RunProgress
from paceline.records.store.folder import RunRecord, read_record, sealed_paths
from paceline.spec import content
from paceline.spec.plans.plan import Plan, Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite
from paceline.worker.launches.schedule import Schedule
from paceline.worker.launches.stopping import Progress
from paceline.workflows import api
from paceline.workflows.running import Prepared

NAMES = ("calibration/zebra", "calibration/apple")
"""In the order asked, which is not that of the alphabet."""
HOST = {
    "event": "host",
    "time_s": 1.0,
    "host": {"cpu": "Example", "usable_cores": 2},
    "device": {"kind": "cpu"},
    "flags": {},
}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    whole = yaml.safe_load(content.find_suite("calibration/same-work").read_text())
    paths = []
    for name in NAMES:
        protocol = {**whole.get("protocol", {}), "launches": 3, "max_seconds": 0.01}
        own = {**whole, "suite": name, "protocol": protocol}
        path = tmp_path / f"{name.split('/')[1]}.yaml"
        path.write_text(yaml.safe_dump(own))
        paths.append(path)
    return paths


def planned(files: list[Path], **fields: Any) -> Plan:
    return make_plan(
        [load_suite(f) for f in files], load_runner(content.find_runner("fake")), Selection(**fields)
    )


def turns(plan: Plan) -> list[str]:
    """Return the suite of each block of each launch, and what the launcher says between them."""
    found: list[str] = []
    suites = {b["block"]: b["suite"] for b in plan.blocks}

    def emit(event: str, **fields: Any) -> None:
        found.append(f"{event} {fields['suite']}")

    for launch, _, taking in Schedule(plan.data, Progress(plan.data), emit).turns():
        found += [f"{launch} {suite}" for suite in sorted({suites[b] for b in taking})]
    return found


def test_launches_of_all_suites_go_in_turn_unless_they_are_asked_for_one_by_one(files: list[Path]) -> None:
    second, first = sorted(NAMES, reverse=True)
    assert turns(planned(files)) == [f"{launch} {name}" for launch in range(3) for name in (first, second)]
    ordered = turns(planned(files, one_by_one=NAMES))
    expected = [[*(f"{launch} {name}" for launch in range(3)), f"suite_complete {name}"] for name in NAMES]
    assert ordered == [*expected[0], *expected[1]]


def test_the_order_is_part_of_the_plan_only_where_it_was_asked_for(files: list[Path]) -> None:
    assert "one_by_one" not in planned(files).data
    assert planned(files, one_by_one=NAMES).data["one_by_one"] == list(NAMES)


def test_a_caller_in_python_asks_for_it_too(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[dict[str, Any]] = []

    def measured(prepared: Prepared, *given: Any, **more: Any) -> Any:
        plans.append(prepared.plan.data)
        raise InfrastructureError("planned only")

    monkeypatch.setattr(api, "perform", measured)
    for order in (True, False):
        with pytest.raises(InfrastructureError, match="planned only"):
            paceline.run(list(files), runner="fake", one_by_one=order, results=tmp_path)
    assert [plan.get("one_by_one") for plan in plans] == [list(NAMES), None]


def run(files: list[Path], store: Path, *options: str) -> str:
    command = ["run", *map(str, files), "--runner", "fake", "--results", str(store), *options]
    result = CliRunner().invoke(application, [*command, "--seed", "7"])
    if isinstance(result.exception, Exception):
        raise result.exception
    return result.output


def test_each_table_stands_once_in_the_order_asked_and_all_is_one_record(
    files: list[Path], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    lines = run(files, store, "--one-by-one").splitlines()
    titles = [line.split(" · ")[0] for line in lines if " · fake" in line]
    assert titles == list(NAMES)
    plan = [line.strip().split(":")[0] for line in lines if line.startswith("  calibration/")]
    assert plan == list(NAMES)
    (path,) = sealed_paths(store)
    assert {m.suite for m in read_record(path).measurements} == set(NAMES)


def test_a_table_is_there_before_the_next_suite_has_results(files: list[Path], tmp_path: Path) -> None:
    plan = planned(files, one_by_one=NAMES)
    seen: list[tuple[str, set[str]]] = []
    recorder = _recorder(plan, tmp_path)
    for event in _events(plan):
        recorder.take(event)
        if (ended := recorder.ended_suite(event)) is not None:
            seen.append((ended[0], {m.suite for m in read_record(ended[1]).measurements}))
    recorder.abandon()
    assert seen == [(NAMES[0], {NAMES[0]}), (NAMES[1], set(NAMES))]


def test_a_suite_of_which_results_are_missing_or_that_nobody_planned_has_not_ended(
    files: list[Path], tmp_path: Path
) -> None:
    plan = planned(files, one_by_one=NAMES)
    recorder = _recorder(plan, tmp_path)
    told = []
    for event in _events(plan):
        if event.get("label") == plan.blocks[0]["cases"][0]["label"] and event.get("launch") == 1:
            continue
        recorder.take(event)
        told.append(recorder.ended_suite(event))
    recorder.abandon()
    assert {t for t in told if t is not None} == set()
    assert recorder.ended_suite({"event": "suite_complete", "suite": "calibration/none"}) is None


def _recorder(plan: Plan, store: Path) -> Recorder:
    facts = {**make_facts(plan, []), "run_id": "01a22a00-0000-7000-8000-000000000000"}
    return Recorder(store, plan, facts, resume=False)


def _events(plan: Plan) -> list[dict[str, Any]]:
    """Return what launcher and rank of a run tell in which all cases fail."""
    events: list[dict[str, Any]] = [HOST]
    for name in plan.data["one_by_one"]:
        for block in (b for b in plan.blocks if b["suite"] == name):
            for launch in range(block["protocol"]["launches"]):
                events += [
                    {
                        "event": "case_failed",
                        "rank": -1,
                        "time_s": 1.0,
                        "launch": launch,
                        "block": block["block"],
                        "case_id": case["case_id"],
                        "label": case["label"],
                        "status": "skipped",
                        "reason": "for a test",
                    }
                    for case in block["cases"]
                ]
        events.append({"event": "suite_complete", "suite": name, "time_s": 1.0, "rank": -1, "launch": -1})
    return events


def test_a_budget_of_the_whole_run_is_refused_beside_it(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a budget is spent where it decides most") as refused:
        run(files, tmp_path, "--one-by-one", "--budget", "5min")
    assert "--one-by-one" in str(refused.value)


def test_the_bar_stands_aside_while_something_is_printed(files: list[Path]) -> None:
    calls: list[str] = []

    class Bar:
        def start(self) -> None:
            calls.append("start")

        def stop(self) -> None:
            calls.append("stop")

    progress = RunProgress(planned(files), quiet=True)
    with progress.aside():
        calls.append("nothing drawn")
    progress._bar = Bar()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="in between"), progress.aside():
        calls.append("printed")
        raise ValueError("in between")
    assert calls == ["nothing drawn", "stop", "printed", "start"]


def test_an_end_that_is_told_twice_is_shown_once_as_after_an_interruption(
    files: list[Path], tmp_path: Path
) -> None:
    plan = planned(files, one_by_one=NAMES)
    recorder = _recorder(plan, tmp_path)
    shown = []
    events = _events(plan)
    for event in [*events, *(e for e in events if e["event"] == "suite_complete")]:
        recorder.take(event)
        shown.append(recorder.ended_suite(event))
    recorder.abandon()
    assert [found[0] for found in shown if found is not None] == list(NAMES)


def test_a_table_that_cannot_be_shown_costs_no_measurement_and_is_shown_at_the_end(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = command.say_tables

    def broken(record: RunRecord, *, only: str | None = None, **options: Any) -> None:
        if only == NAMES[0]:
            raise BrokenPipeError
        whole(record, only=only, **options)

    monkeypatch.setattr(command, "say_tables", broken)
    titles = [
        line.split(" · ")[0]
        for line in run(files, tmp_path / "store", "--one-by-one").splitlines()
        if " · fake" in line
    ]
    assert titles == [NAMES[1], NAMES[0]]
