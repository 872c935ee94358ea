"""An engine and an image for the whole folder, runs of the command line, and jobs that are a script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import borrowed_image
import pytest
from docker_runs import ROOT, MakeScript, Runs, Script
from dockerd import Engine

from paceline.spec.profiles.container import DockerModel, resolved_docker

PROGRAMS = ("dockerd", "mmdebstrap", "setpriv")
IMAGE = "paceline/cpu:local"
KEEP = "PACELINE_TEST_DOCKER"
"""A folder that keeps the engine's images from one session to the next, for those who work on these tests."""


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Start an engine; it is gone afterwards."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if os.getuid() or missing:
        pytest.skip(
            f"needs root and {', '.join(missing) or 'nothing else'}: apt-get install docker.io mmdebstrap"
        )
    kept = os.environ.get(KEEP)
    folder = Path(kept or tempfile.mkdtemp(prefix="pl-docker-"))
    made = Engine(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", made.address)
        try:
            made.clear()
            made.start()
            yield made
        finally:
            made.close()
            if not kept:
                shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    """Make the base and the image for processors as ``make image-base image`` does."""
    for what in (["base"], ["image", "cpu"]):
        if what == ["base"] and engine.client().images("paceline/base"):
            continue
        command = [sys.executable, str(ROOT / "containers" / "build.py"), *what]
        done = subprocess.run(command, env=engine.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return IMAGE


@pytest.fixture
def borrowing(engine: Engine, tmp_path: Path) -> Iterator[Runs]:
    """Return what runs in an image made in seconds; nothing is left in the engine afterwards."""
    borrowed_image.make(engine.client(), tmp_path)
    yield Runs(engine, tmp_path, **borrowed_image.settings())
    assert engine.ours() == []


CASE = {"case_id": "c", "label": "t", "technique": "t"}


@pytest.fixture
def runs(engine: Engine, image: str, tmp_path: Path) -> Iterator[Runs]:
    """Return what runs the command line; nothing is left in the engine afterwards."""
    yield Runs(engine, tmp_path)
    assert engine.ours() == []


@pytest.fixture
def script(engine: Engine, image: str, tmp_path: Path) -> Iterator[MakeScript]:
    """Return what makes job folders of a Python program; nothing is left in the engine afterwards."""
    made: list[Script] = []

    def make(program: str, *, ranks: int = 1, containers: str = "one", **settings: Any) -> Script:
        job = tmp_path / f"job-{len(made)}"
        (job / "engine").mkdir(parents=True)
        (job / "engine" / "engine.py").write_text("the harness's own\n")
        docker = resolved_docker(DockerModel(image=image, containers=containers, **settings))
        plan = {
            "runner": {"device": "cpu", "docker": docker},
            "groups": [{"group": "g", "ranks": ranks, "blocks": ["b"]}],
            "blocks": [{"block": "b", "protocol": {"launches": 1}, "cases": [CASE]}],
            "estimate": {"most_s": 60.0},
        }
        (job / "plan.json").write_text(json.dumps(plan))
        (job / "job.json").write_text(
            json.dumps({"run_id": f"test-{os.getpid()}-{len(made)}-{time.time_ns()}"})
        )
        (job / "program.py").write_text(program)
        (job / "run.sh").write_text("exec python3 program.py\n")
        made.append(Script(job))
        return made[-1]

    yield make
    for one in made:
        if one.execution is not None:
            one.execution.stop()
    assert engine.ours() == []
