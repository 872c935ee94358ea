"""``paceline reproduce`` measures what the record measured, and says what differs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.base.errors import UserError
from paceline.calibration.trials import run_suite, shorten
from paceline.cli.reproduce import Target, differences, find_target, plan_again
from paceline.records.store import RunRecord, load
from paceline.spec import content
from paceline.spec.suite import load_suite


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def record(store: Path) -> RunRecord:
    suite = shorten(load_suite(content.find_suite("calibration/same-work")), 1)
    return run_suite(suite, "fake", store, launches=3, quiet=True)


def test_the_plan_has_the_point_the_launches_and_the_seed_of_the_record(
    record: RunRecord, store: Path
) -> None:
    target = find_target(load([store]), record.measurements[0].record_id)
    plan, suites = plan_again(target, None)
    (block,) = plan.blocks
    assert block["params"]["trial"] == 0
    assert block["protocol"]["launches"] == 3
    assert plan.data["seed"] == record.run.seeds["seed"]
    assert [s.name for s in suites] == ["calibration/same-work"]


def test_an_unchanged_checkout_shows_no_difference_but_its_code(record: RunRecord) -> None:
    plan, suites = plan_again(Target(record=record), None)
    assert [d for d in differences(Target(record=record), suites, plan) if not d.startswith("code:")] == []


def test_changed_sources_are_named(record: RunRecord) -> None:
    plan, suites = plan_again(Target(record=record), None)
    run = record.run.model_copy(
        update={
            "suites": [{**s, "sha256": "0" * 64} for s in record.run.suites],
            "techniques": {n: {**f, "sha256": "0" * 64} for n, f in record.run.techniques.items()},
        }
    )
    found = differences(Target(record=replace(record, run=run)), suites, plan)
    assert any("suite calibration/same-work" in line for line in found)
    assert any(line.startswith("technique ") for line in found)


def test_only_what_the_record_holds_is_planned_and_what_is_gone_is_named(record: RunRecord) -> None:
    kept = [m for m in record.measurements if m.role == "baseline"]
    strange = kept[0].model_copy(update={"label": "my-lab/mine", "record_id": "f" * 16})
    target = Target(record=replace(record, measurements=(*kept, strange)))
    plan, suites = plan_again(target, None)
    assert {c["label"] for b in plan.blocks for c in b["cases"]} == {kept[0].label}
    assert any("my-lab/mine" in line and "left out" in line for line in differences(target, suites, plan))


def test_an_imported_record_is_refused(record: RunRecord) -> None:
    class Imported:
        records = (replace(record, run=record.run.model_copy(update={"imported_from": {"format": "x"}})),)

    with pytest.raises(UserError, match="cannot be measured again"):
        find_target(Imported(), record.measurements[0].record_id)  # type: ignore[arg-type]


def test_the_command_measures_again_and_links_the_record(record: RunRecord, store: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "paceline",
        "reproduce",
        record.run.run_id,
        "--results",
        str(store),
        "--quiet",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    again = [r for r in load([store]).records if r.run.reason == "reproduce"]
    assert [r.run.linked_run for r in again] == [record.run.run_id]
    assert "now" in done.stdout
    assert "record" in done.stdout
