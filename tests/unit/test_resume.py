"""``paceline run --resume``: which run a name fits, and what is said where none can go on."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
import seeds
from click.testing import CliRunner

from paceline.base.errors import UserError
from paceline.calibration.trials import run_suite, shorten
from paceline.cli import application
from paceline.drivers.execute import JOBS
from paceline.drivers.job import build_job
from paceline.drivers.measure import make_facts
from paceline.records.identity import new_run_id
from paceline.records.store.folder import RunRecord
from paceline.records.store.storage import check_writable, resume_command
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    suite = shorten(load_suite(content.find_suite("calibration/same-work")), 1)
    return run_suite(
        suite, "fake", tmp_path_factory.mktemp("sealed"), launches=1, seed=seeds.current(), quiet=True
    )


def store_of(record: RunRecord) -> Path:
    return record.path.parents[2]


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """Return the job folder of a run that was never executed."""
    suite = shorten(load_suite(content.find_suite("calibration/same-work")), 1)
    plan = make_plan([suite], load_runner(content.find_runner("fake")), Selection(launches=1))
    facts = make_facts(plan, [suite])
    job = tmp_path / JOBS / facts["run_id"]
    build_job(job, plan, [suite], facts)
    return job


def refusal(name: str, store: Path) -> str:
    result = CliRunner().invoke(application, ["run", "--resume", name, "--results", str(store), "--quiet"])
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


@pytest.mark.parametrize("length", [36, 20])
def test_a_run_that_is_complete_says_so_and_where_its_record_is(sealed: RunRecord, length: int) -> None:
    said = refusal(sealed.run_id[:length], store_of(sealed))
    assert f"run {sealed.run_id} is complete; there is nothing to resume" in said
    assert said.startswith(f"{sealed.path}: ")


def test_a_name_that_fits_no_run_lists_those_that_wait(interrupted: Path) -> None:
    said = refusal("none", interrupted.parents[1])
    assert "'none' fits 0 interrupted runs" in said
    assert interrupted.name in said
    assert f"paceline store ls --partial --results {interrupted.parents[1]}" in said


def test_a_prefix_that_fits_two_names_both_and_one_that_fits_only_one_open_run_is_enough(
    interrupted: Path, sealed: RunRecord
) -> None:
    jobs = interrupted.parent
    second = jobs / (interrupted.name[:-1] + ("0" if interrupted.name[-1] != "0" else "1"))
    shutil.copytree(interrupted, second)
    said = refusal(interrupted.name[:-1], jobs.parent)
    assert "fits 2 interrupted runs" in said and interrupted.name in said and second.name in said
    shutil.rmtree(second)
    shutil.copytree(store_of(sealed), jobs.parent, dirs_exist_ok=True)
    command = ["run", "--resume", interrupted.name[:1], "--results", str(jobs.parent), "--quiet"]
    result = CliRunner().invoke(application, command)
    assert result.exit_code == 0, result.output
    assert interrupted.name in result.output


def test_a_technique_that_was_changed_is_named_with_both_digests_and_what_to_do(interrupted: Path) -> None:
    files = json.loads((interrupted / "job.json").read_text())["files"]
    name, digest = next(iter(files.items()))
    (interrupted / name).write_text("# another technique\n")
    said = refusal(interrupted.name, interrupted.parents[1])
    now = content.sha256_file(interrupted / name)
    assert all(
        part in said
        for part in (name, digest[:12], now[:12], "put the file back", "paceline run calibration")
    )
    (interrupted / name).unlink()
    assert f"{name} is gone" in refusal(interrupted.name, interrupted.parents[1])


def test_a_run_whose_job_folder_is_gone_says_so(tmp_path: Path) -> None:
    run_id = new_run_id()
    partial = tmp_path / "2026" / "11" / f"{run_id}.jsonl.partial"
    partial.parent.mkdir(parents=True)
    partial.write_text("")
    assert "its job folder is gone" in refusal(run_id[:13], tmp_path)


def test_the_command_that_goes_on_names_the_store_and_can_be_pasted_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "with a space"
    monkeypatch.chdir(tmp_path)
    words = shlex.split(resume_command("an-id", Path("with a space")))
    assert words == ["paceline", "run", "--resume", "an-id", "--results", str(store)]
    check_writable(store)
