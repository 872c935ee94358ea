"""A side's server while calls are sent: one that runs already, one that a command starts, or a mock. Free of torch."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path

from paceline.families.serving.core.load.sending.direct import open_directly
from paceline.families.serving.core.load.sending.target import Tls
from paceline.families.serving.core.mock.process import MockServer
from paceline.families.serving.ops.endpoint.target import Side
from paceline.worker.processes.process import die_with_parent

END_S = 30.0
ASKED_EVERY_S = 0.5
OVERLOADED = 500
"""Statuses from here on mean that a server is there and not ready."""


class NoServerError(Exception):
    """A command gave no server; the second argument is the end of what it wrote."""

    def __init__(self, reason: str, last_words: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.last_words = reason, last_words


@contextlib.contextmanager
def served(side: Side, log: Path) -> Iterator[str]:
    """Give the address of a side's server for the length of a ``with``.

    Args:
        side: Whose server.
        log: File for what a command writes.

    Raises:
        NoServerError: A command could not be started, ended, or its server was not ready in time.
    """
    behaviour = side.mock
    if behaviour is not None:
        with MockServer(behaviour) as server:
            yield server.url
        return
    if not side.start:
        yield side.url
        return
    with log.open("ab") as said:
        try:
            process = subprocess.Popen(
                shlex.split(side.start),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - two system calls, and no lock is taken
            )
        except (OSError, ValueError) as error:
            raise NoServerError(f"'{side.start}' cannot be started: {error}") from error
    try:
        _wait_until_ready(side, process, log)
        yield side.url
    finally:
        _end(side, process, log)


def is_ready(url: str, tls: Tls) -> bool:
    """Return whether a server answers at an address, be it that it wants a key."""
    try:
        context = tls.context() if url.startswith("https") else None
        with open_directly(f"{url}/models", timeout_s=5, tls=context):
            return True
    except urllib.error.HTTPError as error:
        return error.code < OVERLOADED
    except (OSError, ValueError):
        return False


def _wait_until_ready(side: Side, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + side.ready_s
    # A command that ends well may have started a server behind it, such as a container's.
    while process.poll() in (None, 0):
        if is_ready(side.url, side.tls):
            return
        if time.monotonic() > end:
            raise NoServerError(
                f"'{side.start}' gave no server at {side.url} within {side.ready_s:g} s",
                _last_words(log),
            )
        time.sleep(ASKED_EVERY_S)
    raise NoServerError(
        f"'{side.start}' ended with {process.returncode} before its server was ready",
        _last_words(log),
    )


def _end(side: Side, process: subprocess.Popen[bytes], log: Path) -> None:
    """Stop the server by its own command, or else with all that the first command started."""
    if side.stop:
        with log.open("ab") as said, contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                shlex.split(side.stop), stdout=said, stderr=subprocess.STDOUT, timeout=END_S, check=False
            )
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2000:]
