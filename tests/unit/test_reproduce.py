"""``paceline reproduce`` measures what the record measured, and says what differs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import record_factory as factory
import seeds
from click.testing import CliRunner, Result

from paceline.base.errors import EXIT_INCOMPARABLE, UserError
from paceline.calibration.trials import run_suite, shorten
from paceline.cli import application
from paceline.cli.reproducing.reproduce import Target, differences, find_target, plan_again
from paceline.drivers.machine.hostclass import class_here
from paceline.records.format.record_file import run_id_of
from paceline.records.identity import new_run_id, record_id
from paceline.records.origin.provenance import code_state
from paceline.records.store import folder as stores
from paceline.records.store.folder import RunRecord, load, read_record
from paceline.spec import content
from paceline.spec.suites.suite_file import load_suite


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def record(store: Path) -> RunRecord:
    suite = shorten(load_suite(content.find_suite("calibration/same-work")), 1)
    return run_suite(suite, "fake", store, launches=3, seed=seeds.current(), quiet=True)


def drawn(record: RunRecord, *, fixed: bool) -> RunRecord:
    return replace(record, run=record.run.model_copy(update={"seeds": {"seed": 7, "fixed": fixed}}))


def test_the_plan_has_the_point_and_the_launches_of_the_record_and_new_draws(
    record: RunRecord, store: Path
) -> None:
    target = find_target([store], record.measurements[0].record_id)
    plan, suites = plan_again(replace(target, record=drawn(target.record, fixed=False)), None)
    (block,) = plan.blocks
    assert block["params"]["trial"] == 0
    assert block["protocol"]["launches"] == 3
    assert not plan.data["fixed_seed"]
    assert [s.name for s in suites] == ["calibration/same-work"]


def test_the_draws_of_a_record_that_had_a_fixed_seed_are_drawn_again(record: RunRecord) -> None:
    plan, _ = plan_again(Target(record=drawn(record, fixed=True)), None)
    assert (plan.data["seed"], plan.data["fixed_seed"]) == (7, True)


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


def test_an_imported_record_is_refused(tmp_path: Path) -> None:
    path = factory.simple(tmp_path, imported_from={"format": "x"})
    with pytest.raises(UserError, match="cannot be measured again"):
        find_target([tmp_path], read_record(path).measurements[0].record_id)


def test_the_command_measures_again_and_links_the_record(record: RunRecord, store: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "paceline.cli",
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


HERE = {"name": "local-cpu", "driver": "local", "device": "cpu", "network": "host"}


def reproduce(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(application, ["reproduce", *arguments, "--results", str(store), "--quiet"])


def no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("it began to measure")

    for name in ("measure", "measure_as_it_was", "occupied"):
        monkeypatch.setattr(f"paceline.cli.reproducing.reproduce.{name}", refuse)


@pytest.mark.parametrize("code", ["here", "record"])
def test_another_host_class_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    path = factory.simple(tmp_path, runner=HERE, code=code_state(), host_class="Another CPU, 9 cores, 8 GiB")
    no_measuring(monkeypatch)
    refused = reproduce(tmp_path, run_id_of(path), "--code", code)
    assert refused.exit_code == EXIT_INCOMPARABLE, refused.output
    assert (
        f"host classes differ: '{class_here(HERE)}' here, 'Another CPU, 9 cores, 8 GiB' in the record"
        in refused.output
    )
    assert "--force measures here all the same" in refused.output
    assert not list(tmp_path.glob("jobs/*"))


def test_the_class_that_is_told_before_a_run_is_the_one_that_it_records(
    record: RunRecord, store: Path
) -> None:
    assert class_here(record.run.runner) == record.run.host_class
    told = reproduce(store, record.run_id, "--dry-run", "--code", "here")
    assert told.exit_code == 0, told.output
    assert "same host class as the record" in told.output


def test_what_is_measured_by_force_is_marked_and_decides_nothing(record: RunRecord, tmp_path: Path) -> None:
    run = record.run.model_copy(update={"host_class": "Another CPU", "run_id": new_run_id()})
    lines = [
        m.model_copy(
            update={
                "run_id": run.run_id,
                "record_id": record_id(m.family, run.run_id, m.block, m.label, m.launch, m.metric.name),
            }
        )
        for m in record.measurements
    ]
    factory.write(tmp_path, run, lines)
    forced = reproduce(tmp_path, run.run_id, "--force", "--code", "here")
    assert forced.exit_code == 0, forced.output
    assert "verdict: FORCED, NOT COMPARABLE (host classes differ" in forced.output
    assert forced.output.count("FORCED, NOT COMPARABLE") == 2, "the table is marked too"
    notes = [e.data for r in load([tmp_path]).records for e in r.events if "reproduction" in e.data]
    assert [n["reproduction"] for n in notes] == ["cannot"]
    assert "forced, not comparable" in notes[0]["text"]


def test_what_is_missing_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_measuring(monkeypatch)
    fits = class_here(HERE)
    gone = factory.simple(tmp_path, runner=HERE, host_class=fits, code={"commit": "0" * 40, "dirty": False})
    lost = reproduce(tmp_path, run_id_of(gone))
    assert (lost.exit_code, "is not in this repository" in lost.output) == (EXIT_INCOMPARABLE, True)
    assert "is not in this repository" in reproduce(tmp_path, run_id_of(gone), "--dry-run").output
    no_runner = factory.simple(
        tmp_path, runner=HERE | {"name": "their-own"}, host_class=fits, code=code_state()
    )
    assert "unknown runner 'their-own'" in reproduce(tmp_path, run_id_of(no_runner), "--code", "here").output
    gpu = factory.simple(tmp_path, runner=HERE | {"device": "npu"}, host_class=fits, code=code_state())
    refused = reproduce(tmp_path, run_id_of(gpu), "--code", "here")
    assert (refused.exit_code, "npu" in refused.output) == (EXIT_INCOMPARABLE, True)
    run = factory.make_run(runner=HERE, host_class=fits, code=code_state())
    other = factory.write(tmp_path, run, factory.launches(run, "native", [1.0], contract_id="another"))
    assert (
        "every metric of the record is defined otherwise"
        in reproduce(tmp_path, run_id_of(other), "--code", "here").output
    )
    monkeypatch.setattr("paceline.drivers.machine.hostclass.has_torch", lambda: False)
    there = factory.simple(tmp_path, runner=HERE, host_class=fits, code=code_state())
    assert "torch is not installed" in reproduce(tmp_path, run_id_of(there), "--code", "here").output
    monkeypatch.setattr("paceline.spec.content.checkout_root", lambda: None)
    assert "installed without one" in reproduce(tmp_path, run_id_of(gone)).output


def test_a_dry_run_reads_one_record_however_many_the_store_has(
    record: RunRecord, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(store, tmp_path, dirs_exist_ok=True)
    for _ in range(5):
        factory.simple(tmp_path)
    read: list[Path] = []
    placed = stores.read_placed
    monkeypatch.setattr(
        "paceline.records.store.folder.read_placed", lambda path: read.append(path) or placed(path)
    )
    for name in (record.run_id, record.measurements[-1].record_id):
        told = reproduce(tmp_path, name, "--dry-run", "--code", "here")
        assert told.exit_code == 0, told.output
    assert {p.name for p in read} == {record.path.name}
