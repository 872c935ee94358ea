"""The debug driver: the worker inside the controller's own process, with threads for ranks.

Breakpoints work, nothing has to be started, and there is no isolation: a technique that hangs, hangs the command.
Measured times are real but ranks share one interpreter lock, so no comparison with other runners makes sense.
"""

from __future__ import annotations

import importlib
from pathlib import Path


class DebugExecution:
    """A job that was executed before ``start`` returned."""

    def __init__(self, code: int) -> None:
        self._code = code

    def poll(self) -> int:
        """Return the exit code."""
        return self._code

    def stop(self) -> None:
        """Do nothing: the job has ended."""

    def log(self) -> str:
        """Return nothing: output went to the terminal."""
        return ""


class DebugDriver:
    """Runs a job folder in this process."""

    def start(self, job: Path) -> DebugExecution:
        """Execute the whole job and return."""
        worker = importlib.import_module("paceline.worker.inprocess")
        return DebugExecution(worker.run_job(job))
