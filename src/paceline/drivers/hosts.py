"""The hosts driver: one launcher a host, started over ssh, without a scheduler.

The job folder lies in a folder that all hosts have at the same path; the agents meet as they do under Slurm.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

STOP_FILE = "stop"
STOP_S = 15.0
LOG_TAIL_BYTES = 3000
GRACE_S = 5.0
"""Time between the first launcher that failed and the end of the others."""


def host_commands(hosts: Mapping[str, Any], job: PurePath, session: str, python: str) -> list[list[str]]:
    """Return one command a host.

    Args:
        hosts: The profile's section ``hosts``, resolved.
        job: The job folder.
        session: A name that no earlier start of this job had.
        python: Used where the profile names none.
    """
    names = hosts["names"]
    commands = []
    for node, host in enumerate(names):
        settings = {
            "PACELINE_NODE": str(node),
            "PACELINE_NODES": str(len(names)),
            "PACELINE_SESSION": session,
            "PYTHON": hosts["python"] or python,
        }
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())
        line = f"cd {shlex.quote(str(job))} && exec env {words} /bin/sh ./run.sh"
        commands.append([part.replace("{host}", host) for part in hosts["connect"]] + [line])
    return commands


class HostsDriver:
    """Runs a job folder on several hosts."""

    def start(self, job: Path) -> HostsExecution:
        """Start one launcher on each host and return at once."""
        runner = json.loads((job / "plan.json").read_text())["runner"]
        (job / STOP_FILE).unlink(missing_ok=True)
        session = uuid.uuid4().hex[:12]
        processes = []
        for node, command in enumerate(host_commands(runner["hosts"], job, session, sys.executable)):
            with (job / f"launcher-{node}.log").open("ab") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            processes.append(process)
        return HostsExecution(job, processes)


class HostsExecution:
    """Launchers on several hosts."""

    def __init__(self, job: Path, processes: list[subprocess.Popen[bytes]]) -> None:
        self._job = job
        self._processes = processes
        self._failed_s: float | None = None

    def poll(self) -> int | None:
        """Return the worst exit code when all have ended, or a launcher's that failed while others go on."""
        codes = [process.poll() for process in self._processes]
        if None not in codes:
            return next((abs(code) for code in codes if code), 0)
        bad = [abs(code) for code in codes if code]
        if bad and self._failed_s is None:
            self._failed_s = time.monotonic()
        late = self._failed_s is not None and time.monotonic() - self._failed_s > GRACE_S
        return bad[0] if late else None

    def stop(self) -> None:
        """Tell the launchers to end, for what ssh starts outlives it; end the connections that stay."""
        if any(process.poll() is None for process in self._processes):
            (self._job / STOP_FILE).touch()
        deadline = time.monotonic() + STOP_S
        for process in self._processes:
            try:
                process.wait(timeout=max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def log(self) -> str:
        """Return the end of what each launcher printed."""
        paths = sorted(self._job.glob("launcher-*.log"))
        return "\n".join(p.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip() for p in paths)
