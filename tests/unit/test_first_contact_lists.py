"""Lists for first contact: what they say is checked, each usual list can be planned, and runs are found again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from paceline.base.errors import UserError
from paceline.spec.content import docs_folder
from paceline.workflows.first_contact import export, load_first_contact

LISTS = sorted((docs_folder() / "examples").glob("first-contact-*.yaml"))


def quiet(text: str) -> None:
    """Take a warning."""


@pytest.mark.parametrize("path", LISTS, ids=lambda p: p.stem)
def test_every_usual_list_can_be_planned(path: Path) -> None:
    contact = load_first_contact(path, say=quiet)
    assert contact.runner == f"local-{path.stem.rpartition('-')[2]}"
    assert any(step.prepared is not None for step in contact.steps)


def test_mistakes_are_named_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(
        "first_contact: mine\nrunner: local-cpu\nsteps:\n"
        "  - {step: a, tells: something, suites: [tour/all-reduce], launches: many}\n"
        "  - {step: b, tells: something, suites: [tour/no-such-suite]}\n"
        "  - {step: c, tells: something, suites: [tour/gemm], tier: standard, filters: {m: 3}}\n"
    )
    with pytest.raises(UserError) as found:
        load_first_contact(path, say=quiet)
    text = str(found.value)
    assert f"{path}:4" in text
    assert f"{path}:5" in text
    assert f"{path}:6" in text
    assert "no point of the suites has m 3" in text


def test_a_step_that_is_there_twice_or_nowhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    step = "  - {step: a, tells: something, suites: [tour/all-reduce], tier: standard}\n"
    path.write_text(f"first_contact: mine\nrunner: local-cpu\nsteps:\n{step}{step}")
    with pytest.raises(UserError, match="'a' is there twice"):
        load_first_contact(path, say=quiet)
    path.write_text(f"first_contact: mine\nrunner: local-cpu\nsteps:\n{step}")
    with pytest.raises(UserError, match="no step is called 'b'"):
        load_first_contact(path, only=["b"], say=quiet)


def test_a_step_that_a_runner_cannot_run_is_missing_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(
        "first_contact: mine\nrunner: local-cpu\nsteps:\n"
        "  - {step: a, tells: something, suites: [collectives/edge-latency], tier: standard}\n"
    )
    (step,) = load_first_contact(path, say=quiet).steps
    assert step.prepared is None
    assert step.missing is not None
    assert "needs the link" in step.missing


def test_a_job_folder_says_what_its_python_lacks(tmp_path: Path) -> None:
    contact = load_first_contact(
        docs_folder() / "examples/first-contact-cpu.yaml", only=["kernels"], say=quiet
    )
    (job,) = export(contact, tmp_path / "jobs")
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    ended = subprocess.run(
        ["sh", str(job / "run.sh")],
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(bare)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "has no torch or no numpy" in ended.stderr
