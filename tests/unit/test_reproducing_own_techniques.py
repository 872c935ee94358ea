"""A run with a technique of a user's own file holds that file, and is measured again with it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import record_factory as factory
from click.testing import CliRunner, Result

from paceline.cli import application
from paceline.records.format.record import Run
from paceline.records.origin.own_techniques import MAX_SOURCE_BYTES, write_sources
from paceline.records.store.folder import load, read_record

MINE = '''"""A clock that is invented; no paper."""

from paceline import technique
from paceline.families.calibration.api.work import FakeDevice


@technique(name="my-lab/mine", family="calibration", implements=("work",), summary="as steady")
class Mine:
    def __init__(self, device: FakeDevice, stream: str, work_s: float) -> None:
        self.device, self.stream, self.work_s = device, stream, work_s

    def run(self) -> None:
        self.device.work(self.work_s, stream=self.stream)
'''


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(application, [str(a) for a in arguments])


def measured(tmp_path: Path, text: str) -> tuple[Path, Result]:
    """Run a calibration suite of an invented clock with a user's own technique, whose file is then gone."""
    store, file = tmp_path / "store", tmp_path / "mine.py"
    file.write_text(text, encoding="utf-8")
    done = invoke(
        "run",
        "calibration/same-work",
        "--runner",
        "fake",
        "--launches",
        2,
        "--filter",
        "trial=0",
        "--technique",
        file,
        "--results",
        store,
        "--quiet",
        "--seed",
        7,
    )
    file.unlink()
    return store, done


def test_the_file_of_a_users_technique_is_in_the_record_and_is_measured_again(tmp_path: Path) -> None:
    store, done = measured(tmp_path, MINE)
    assert done.exit_code in (0, 5), done.output
    (record,) = load([store]).records
    facts = record.run.techniques["calibration/my-lab/mine"]
    assert facts["text"] == MINE
    assert facts["sha256"] == hashlib.sha256(MINE.encode()).hexdigest()
    again = invoke("reproduce", record.run_id, "--code", "here", "--results", store, "--quiet")
    (new,) = [r for r in load([store]).records if r.run.reason == "reproduce"]
    assert {m.label for m in new.measurements} == {m.label for m in record.measurements} >= {"my-lab/mine"}
    assert "mine.py is measured as the record holds it" in again.output
    assert "left out" not in again.output
    assert new.run.techniques["calibration/my-lab/mine"] == facts


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ('API_TOKEN = "abcdef0123456789"', "what looks like a secret"),
        ("#" * MAX_SOURCE_BYTES, "a record keeps"),
    ],
)
def test_a_file_that_a_record_cannot_hold_is_named_when_it_is_reproduced(
    extra: str, why: str, tmp_path: Path
) -> None:
    store, done = measured(tmp_path, MINE + extra)
    assert done.exit_code in (0, 5), done.output
    (record,) = load([store]).records
    assert "text" not in record.run.techniques["calibration/my-lab/mine"]
    again = invoke("reproduce", record.run_id, "--code", "here", "--results", store, "--dry-run")
    assert "technique calibration/my-lab/mine: the record does not hold its file" in again.output
    assert why in again.output


def with_techniques(run: Run, **facts: object) -> Run:
    given = {
        "file": "mine.py",
        "module": "user:mine",
        "sha256": hashlib.sha256(b"x = 1").hexdigest(),
        **facts,
    }
    return run.model_copy(update={"techniques": {"kernels/mine": given}})


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, "made by an earlier version"),
        ({"text": "x = 2"}, "does not fit its digest"),
        ({"text": "x = 1", "file": "mine.sh"}, "no name of a Python file"),
        ({"text": ["x = 1"]}, "made by an earlier version"),
    ],
)
def test_a_text_that_is_not_that_file_is_not_written(
    facts: dict[str, object], why: str, tmp_path: Path
) -> None:
    run = with_techniques(read_record(factory.simple(tmp_path / "store")).run, **facts)
    folder = tmp_path / "files"
    folder.mkdir()
    files, (reason,) = write_sources(run, {"kernels/mine"}, folder)
    assert files == list(folder.iterdir()) == []
    assert why in reason


def test_a_record_writes_nowhere_but_into_the_folder(tmp_path: Path) -> None:
    run = read_record(factory.simple(tmp_path / "store")).run
    folder = tmp_path / "files"
    folder.mkdir()
    given = with_techniques(run, text="x = 1", file="../../mine.py")
    assert write_sources(given, {"kernels/mine"}, folder) == ([folder / "mine.py"], [])
    assert write_sources(given, {"kernels/other"}, folder) == ([], [])
