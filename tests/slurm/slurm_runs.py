"""Runs of a cluster, in the background, with profiles whose tasks do what a test needs."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paceline_commands
import yaml
from cluster import Cluster

from paceline.records.format import record_file
from paceline.records.store.folder import record_paths

RUNNERS = Path(__file__).parents[2] / "runners"
POINT = ["collectives/all-reduce", "--tier", "quick", "--launches", "1", "--filter", "size_bytes=4KiB"]
STUCK = {
    "setup": ["sleep 600"],
    "nodes": 1,
    "options": ["--nodelist=n0"],
    "exclusive": False,
    "array_at_once": 1,
}
"""A task that never begins to measure, beside others of its kind."""


def lines_of(results: Path) -> list[dict[str, Any]]:
    """Return the lines of the one sealed record of a store."""
    (path,) = record_paths(results)
    return [json.loads(line) for line in record_file.lines_of(path)]


@dataclass
class Controller:
    """A ``paceline run`` in the background."""

    process: subprocess.Popen[str]
    results: Path
    cluster: Cluster
    started: float = field(default_factory=time.monotonic)

    def job(self) -> Path:
        """Return the run's job folder."""
        return next((self.results / "jobs").iterdir())

    def wait_for_task(self, state: str = "RUNNING") -> str:
        """Wait until the run's job is in a state; return the job's id."""

        def found() -> list[str]:
            # the folder of jobs is there a moment before the job's own
            (job,) = list((self.results / "jobs").glob("*"))[:1] or [Path("none")]
            name = f"--name=paceline-{job.name}"
            return self.cluster.ask("squeue", "-h", name, "-t", state, "-o", "%F").split()

        self.cluster.wait_for(lambda: found() or self.process.poll() not in (None, -signal.SIGKILL))
        ids = found()
        assert ids, self.process.communicate()
        return ids[0]

    def wait_for_task_again(self, job_id: str) -> None:
        """Wait until a task that was queued again is waiting, and let it begin in seconds instead of in two minutes.

        Not at once: a node takes no job that was killed there in the same second ("already killed, do not launch").
        """
        state = ("squeue", "-h", "-j", job_id, "-o", "%T")
        self.cluster.wait_for(
            lambda: self.cluster.ask(*state).strip() == "PENDING"
        )  # and not COMPLETING as well
        self.cluster.ask("scontrol", "update", f"jobid={job_id}", "StartTime=now+3")

    def end(self, limit_s: float = 120.0) -> tuple[int, str]:
        """Wait for the end; return the exit code and what was printed."""
        output, errors = self.process.communicate(timeout=limit_s)
        return self.process.returncode, output + errors

    def record(self) -> list[dict[str, Any]]:
        """Return the lines of the sealed record."""
        return lines_of(self.results)


class Start:
    """Starts runs, whose profiles and results are in one folder."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._controllers: list[Controller] = []

    def __call__(self, *arguments: str, slurm: dict[str, Any] | None = None, name: str = "r") -> Controller:
        """Start a run with the shipped profile, or with one whose section ``slurm`` differs."""
        runner: Path | str = "slurm-cpu"
        if slurm is not None:
            profile = yaml.safe_load((RUNNERS / "slurm-cpu.yaml").read_text())
            profile["slurm"] |= {"poll_seconds": 0.3, **slurm}
            runner = self._folder / name / "slurm-cpu.yaml"
            runner.parent.mkdir()
            runner.write_text(yaml.safe_dump(profile))
        results = self._folder / name / "results"
        command = paceline_commands.command("run", *arguments, "--results", results)
        if "--resume" not in arguments:
            command += ["--runner", str(runner)]
        process = subprocess.Popen(
            command, env=self._cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._controllers.append(Controller(process, results, self._cluster))
        return self._controllers[-1]

    def close(self) -> None:
        """End what still runs."""
        for controller in self._controllers:
            if controller.process.poll() is None:
                controller.process.send_signal(signal.SIGINT)
                controller.end(60)


def follow_a_killed_controller(starter: Start, cluster: Cluster) -> Controller:
    """Kill a controller and queue its task again, as preemption does; return the controller that takes over.

    The task's first attempt hangs, the second measures.
    """
    first_hangs = {"setup": ['[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || exec sleep 600'], "requeue": True}
    first = starter(*POINT, "--techniques", "ring", slurm={**STUCK, **first_hangs}, name="requeued")
    job = first.wait_for_task()
    first.process.kill()
    first.process.communicate()
    cluster.ask("scontrol", "requeue", job)
    first.wait_for_task_again(job)
    return starter("--resume", first.job().name, name="requeued")
