"""Runs of the command line in containers, and jobs whose ``run.sh`` is a test's own."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paceline_commands
import yaml
from dockerd import Engine

from paceline.base.files.events import read_events
from paceline.drivers.docker.driver import DockerDriver, DockerExecution
from paceline.records.format.record_file import lines_of
from paceline.records.store.folder import record_paths

ROOT = Path(__file__).parents[2]
RUN_S = 200.0


@dataclass(frozen=True)
class Ended:
    """How a run of the command line ended."""

    code: int
    output: str
    results: Path

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the one sealed record."""
        (path,) = record_paths(self.results)
        return [json.loads(line) for line in lines_of(path)]

    def measured(self) -> list[dict[str, Any]]:
        """Return its measurements."""
        return [line for line in self.lines() if line["line"] == "measurement"]


class Runs:
    """Runs of the command line, with shipped profiles or with changed ones.

    Args:
        engine: Whose containers they are.
        folder: For profiles and results.
        always: Keys of the profiles' section ``docker`` in all runs.
    """

    def __init__(self, engine: Engine, folder: Path, **always: Any) -> None:
        self._engine, self._folder, self._always, self._count = engine, folder, always, 0

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
        if changes := self._always | changes:
            text = yaml.safe_load((ROOT / "runners" / f"{runner}.yaml").read_text())
            text["docker"] |= changes
            profile = self._folder / f"{self._count}" / f"{runner}.yaml"
            profile.parent.mkdir()
            profile.write_text(yaml.safe_dump(text))
        store = results or self._folder / f"results-{self._count}"
        command = paceline_commands.command("run", *arguments, "--results", store)
        command += [] if "--resume" in arguments else ["--runner", str(profile)]
        environment = {**self._engine.environment, **({"PACELINE_CONTENT": str(content)} if content else {})}
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ), store

    def __call__(self, *arguments: str, **options: Any) -> Ended:
        process, store = self.start(*arguments, **options)
        output, _ = process.communicate(timeout=RUN_S)
        return Ended(process.returncode, output, store)


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
