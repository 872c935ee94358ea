"""A job folder runs where nothing but torch and numpy is installed, and gives the same kind of record."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import paceline_commands
import pytest
import yaml
from packaging.requirements import Requirement

import paceline
from paceline.base.errors import UserError
from paceline.drivers.job import read_job
from paceline.records.store.folder import RunRecord, read_record, record_paths

SUITE = {
    "suite": "collectives/job",
    "version": 1,
    "family": "collectives",
    "why": "A small job.",
    "workload": {"op": "all_reduce", "payload": "gaussian"},
    "baseline": "native",
    "techniques": ["native", "ring"],
    "matrix": {"size_bytes": ["4KiB", "64KiB"], "ranks": [2]},
    "protocol": {"launches": 1, "warmup": "none", "min_samples": 5, "max_samples": 10, "kernel_calls": 0},
}
ENGINE = str(Path(paceline.__file__).parents[1])


def needed(package: str, found: dict[str, importlib.metadata.Distribution]) -> None:
    """Collect a distribution and everything that it needs, extras aside."""
    distribution = importlib.metadata.distribution(package)
    if distribution.name in found:
        return
    found[distribution.name] = distribution
    for line in distribution.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed(requirement.name, found)


def bare_python(folder: Path) -> Path:
    """Make a virtual environment in which only torch, numpy and what they need can be imported."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    found: dict[str, importlib.metadata.Distribution] = {}
    for package in ("torch", "numpy"):
        needed(package, found)
    for distribution in found.values():
        for name in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
            source = Path(str(distribution.locate_file(name)))
            target = site / name
            if source.exists() and name != "__pycache__" and not target.exists():
                target.symlink_to(source)
    return folder / "bin" / "python"


def paceline_command(*arguments: object) -> str:
    command = paceline_commands.command(*arguments)
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": ENGINE},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def only_record(store: Path) -> RunRecord:
    (path,) = record_paths(store)
    return read_record(path)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bare_python(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("suite") / "job.yaml"
    path.write_text(yaml.safe_dump(SUITE))
    return path


def bare(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(python.parent)}
    return subprocess.run(
        [str(python), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_bare_environment_has_torch_and_numpy_and_none_of_our_dependencies(python: Path) -> None:
    assert bare(python, "-c", "import numpy, torch.distributed").returncode == 0
    for name in ("click", "pydantic", "yaml", "pandas", "pyarrow", "scipy", "rich", "psutil", "paceline"):
        done = bare(python, "-c", f"import {name}")
        assert done.returncode != 0, f"{name} can be imported"
        assert f"No module named '{name}'" in done.stderr


def test_an_exported_job_gives_the_same_kind_of_record_as_a_local_run(
    python: Path, suite: Path, tmp_path: Path
) -> None:
    job = tmp_path / "job"
    paceline_command("job", "export", suite, "--seed", "7", "--output", job)
    done = subprocess.run(
        ["sh", str(job / "run.sh")],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    paceline_command("job", "collect", job, "--results", tmp_path / "collected")
    paceline_command("run", suite, "--seed", "7", "--results", tmp_path / "local", "--quiet")
    collected, local = only_record(tmp_path / "collected"), only_record(tmp_path / "local")
    assert kinds(collected) == kinds(local)
    assert collected.sealed
    assert all(m.status == "ok" and m.value is not None for m in collected.measurements)
    assert collected.run.plan_sha256 == local.run.plan_sha256
    assert keys(collected) == keys(local)


def test_running_a_job_twice_measures_nothing_twice(python: Path, suite: Path, tmp_path: Path) -> None:
    job = tmp_path / "job"
    paceline_command("job", "export", suite, "--filter", "size_bytes=4KiB", "--output", job)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHON": str(python)}
    events = []
    for _ in range(2):
        subprocess.run(["sh", str(job / "run.sh")], env=environment, timeout=180, check=True)
        events.append((job / "events-0.jsonl").read_text().count('"result"'))
    assert events == [2, 2]


def test_a_technique_changed_after_the_export_is_found(suite: Path, tmp_path: Path) -> None:
    job = tmp_path / "job"
    paceline_command("job", "export", suite, "--output", job)
    assert read_job(job)[1]["files"]
    changed = next((job / "baselines").rglob("native.py"))
    changed.write_text(changed.read_text() + "# one line more\n")
    with pytest.raises(UserError, match="is not the file that was exported"):
        read_job(job)


def kinds(record: RunRecord) -> set[tuple[str, str, str, str, str, int]]:
    return {
        (m.case_id, m.block, m.label, m.metric.name, m.metric.contract_id, m.launch)
        for m in record.measurements
    }


def keys(record: RunRecord) -> tuple[set[str], set[str]]:
    """Return the fields that are filled in: of the run line, and of all measurements."""
    run = {name for name, value in record.run.model_dump().items() if value is not None}
    lines = {n for m in record.measurements for n, v in m.model_dump().items() if v is not None}
    return run, lines
