"""An engine and an image for the whole folder, runs of the command line, and jobs that are a script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from dockerd import Engine

from paceline.container import DockerModel, resolved_docker
from paceline.drivers.docker import DockerDriver, DockerExecution
from paceline.eventfile import read_events

ROOT = Path(__file__).parents[2]
PROGRAMS = ("dockerd", "mmdebstrap", "setpriv")
IMAGE = "paceline/cpu:local"
KEEP = "PACELINE_TEST_DOCKER"
"""A folder that keeps the engine's images from one session to the next, for those who work on these tests."""
RUN_S = 200.0


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


@dataclass(frozen=True)
class Ended:
    """How a run of the command line ended."""

    code: int
    output: str
    results: Path

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the one sealed record."""
        (path,) = self.results.glob("20*/*/*.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def measured(self) -> list[dict[str, Any]]:
        """Return its measurements."""
        return [line for line in self.lines() if line["line"] == "measurement"]


class Runs:
    """Runs of the command line, with shipped profiles or with changed ones."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine, self._folder, self._count = engine, folder, 0

    def start(
        self,
        *arguments: str,
        runner: str = "docker-cpu",
        results: Path | None = None,
        content: Path | None = None,
        **changes: Any,
    ) -> tuple[subprocess.Popen[str], Path]:
        """Start one; ``changes`` are keys of the profile's section ``docker``."""
        self._count += 1
        profile: Path | str = runner
        if changes:
            text = yaml.safe_load((ROOT / "runners" / f"{runner}.yaml").read_text())
            text["docker"] |= changes
            profile = self._folder / f"{self._count}" / f"{runner}.yaml"
            profile.parent.mkdir()
            profile.write_text(yaml.safe_dump(text))
        store = results or self._folder / f"results-{self._count}"
        command = [sys.executable, "-m", "paceline", "run", *arguments, "--results", str(store)]
        command += [] if "--resume" in arguments else ["--runner", str(profile)]
        environment = {**self._engine.environment, **({"PACELINE_CONTENT": str(content)} if content else {})}
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ), store

    def __call__(self, *arguments: str, **options: Any) -> Ended:
        process, store = self.start(*arguments, **options)
        output, _ = process.communicate(timeout=RUN_S)
        return Ended(process.returncode, output, store)


@pytest.fixture
def runs(engine: Engine, image: str, tmp_path: Path) -> Iterator[Runs]:
    """Return what runs the command line; nothing is left in the engine afterwards."""
    yield Runs(engine, tmp_path)
    assert engine.ours() == []


@dataclass
class Script:
    """A job folder whose ``run.sh`` is the test's own, driven as a run is."""

    job: Path
    execution: DockerExecution | None = None
    container: dict[str, Any] = field(default_factory=dict)

    def start(self) -> DockerExecution:
        """Start it."""
        self.execution = DockerDriver().start(self.job)
        return self.execution

    def end(self, limit_s: float = 60.0) -> int:
        """Follow it to its end and remove it; return its code."""
        execution = self.execution or self.start()
        deadline = time.monotonic() + limit_s
        try:
            while (code := execution.poll()) is None:
                assert time.monotonic() < deadline, execution.log()
                time.sleep(0.05)
        finally:
            execution.stop()
        return code

    def reasons(self) -> list[str]:
        """Return why cases failed, as the controller says."""
        events = read_events(self.job / "events-container.jsonl")[0]
        return [
            e["reason"] for e in events if e["event"] == "case_failed" and e["status"] == "infrastructure"
        ]

    def found(self, name: str = "found.json") -> Any:
        """Return what the script wrote."""
        return json.loads((self.job / name).read_text())


MakeScript = Callable[..., Script]
CASE = {"case_id": "c", "label": "t", "technique": "t"}


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
