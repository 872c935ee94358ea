"""The local driver: the job's own ``run.sh`` as a child process of the controller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from paceline.base.files.job_folder import CALLED_FROM

STOP_S = 10.0
LOG_NAME = "launcher.log"
LOG_TAIL_BYTES = 4000


class LocalExecution:
    """A running launcher on this machine."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def poll(self) -> int | None:
        """Return the launcher's exit code, or None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Terminate the launcher, which ends its ranks; kill the whole session when it does not listen."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def log(self) -> str:
        """Return the end of the launcher's output."""
        try:
            return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace")
        except OSError:
            return ""


class LocalDriver:
    """Runs a job folder on this machine, with this Python."""

    def start(self, job: Path) -> LocalExecution:
        """Start ``run.sh`` in a session of its own, so that Ctrl-C reaches the controller only."""
        environment = {**os.environ, "PYTHON": sys.executable, "PACELINE_DIE_WITH_PARENT": str(os.getpid())}
        with suppress(FileExistsError, FileNotFoundError), (job / CALLED_FROM).open("x") as file:
            file.write(str(Path.cwd()))  # of a run that is resumed from elsewhere the first one stays
        log = job / LOG_NAME
        with log.open("ab") as output:
            process = subprocess.Popen(
                ["/bin/sh", str(job / "run.sh")],
                cwd=job,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return LocalExecution(process, log)
