"""Starts the fork server of a launch before the rank does anything else; free of torch.

A rank that was forked has imported torch already: its fork server is a fork of it, made before the rank computes.
Another rank starts an interpreter, which imports torch beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib import import_module
from typing import Protocol

from paceline.worker.channel import Channel
from paceline.worker.processes import early_fork
from paceline.worker.processes.process import SOURCE_SECRETS

POLL_S = 0.01
FORK_SERVER = "paceline.families.kernels.core.timing_process.fork_server"
# No pool of compiler workers beside timed calls, and no thread pool before the fork, which would not survive it.
SETTINGS = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Process(Protocol):
    """What is needed of the fork server's process."""

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it has ended; ``subprocess.TimeoutExpired``: it has not."""
        ...

    def kill(self) -> None:
        """End it."""
        ...


Started = tuple[Process, Channel]
_waiting: list[Started] = []


class _Fork:
    """A fork of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self._code = os.waitstatus_to_exitcode(status)
            elif deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(FORK_SERVER, timeout or 0.0)
            else:
                time.sleep(POLL_S)
        return self._code

    def kill(self) -> None:
        if self._code is None:
            os.kill(self.pid, 9)


def begin() -> None:
    """Start a fork server that ``take`` will hand out; call it before anything is computed."""
    # A fork shares the pages of torch that this rank has imported; a new interpreter imports it once more.
    _waiting.append(_forked() if early_fork.is_possible() else _spawned())


def take() -> Started:
    """Return the fork server's process and the channel to it, started now if it was not before."""
    return _waiting.pop() if _waiting else _spawned()


def _forked() -> Started:
    pid, channel = early_fork.begin(_serve)
    return _Fork(pid), channel


def _serve(descriptor: int) -> int:
    os.environ.update(SETTINGS)
    code: int = import_module(FORK_SERVER).main([str(descriptor)])
    return code


def _spawned() -> Started:
    mine, theirs = Channel.pair()
    process = subprocess.Popen(
        [sys.executable, "-m", FORK_SERVER, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env={k: v for k, v in os.environ.items() if k not in SOURCE_SECRETS} | SETTINGS,
    )
    theirs.close()
    return process, mine
