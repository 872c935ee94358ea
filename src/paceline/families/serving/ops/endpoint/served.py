"""A side's server while calls are sent: one that runs already, one that a command starts, or a mock. Free of torch."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator, Mapping
from pathlib import Path

from paceline.families.serving.core.load.sending.direct import open_directly
from paceline.families.serving.core.load.sending.target import Tls
from paceline.families.serving.core.mock.process import MockServer
from paceline.families.serving.ops.endpoint import guard as guard_script
from paceline.families.serving.ops.endpoint.target import Side
from paceline.worker.processes.process import die_with_parent, kept_variables

SHELL = ("/bin/sh", "-c")
"""Reads commands as a person writes them: variables in front, ``cd``, ``&&``, quotes."""
OPERATORS = set("();<>|&")
SHELL_WORDS = frozenset(
    [
        "!",
        ".",
        "{",
        "case",
        "cd",
        "command",
        "eval",
        "exec",
        "export",
        "for",
        "if",
        "set",
        "source",
        "time",
        "trap",
        "ulimit",
        "umask",
        "until",
        "while",
    ]
)
"""First words of lines that are no programs."""
OWN = ("OMP_NUM_THREADS", "PYTHON", "PYTHONPATH", "USER")
"""Variables that a rank has of its own: a server with one thread is another server."""
END_S = 30.0
"""A server may take so long to end when it is asked to, and its command behind ``--stop`` as long."""
ASKED_EVERY_S = 0.5
OVERLOADED = 500
"""Statuses from here on mean that a server is there and not ready."""


class NoServerError(Exception):
    """A command gave no server; the second argument is the end of what it wrote."""

    def __init__(self, reason: str, last_words: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.last_words = reason, last_words


def shell_line(command: str) -> str:
    """Return a command for the shell, which hands its own process to it where the command is a single program.

    Then the kernel ends the program itself when whoever started it is killed.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # the shell says what is wrong with it
        return command
    several = not words or "\n" in command or any(set(word) <= OPERATORS for word in words)
    return command if several or "=" in words[0] or words[0] in SHELL_WORDS else f"exec {command}"


class TakenError(NoServerError):
    """Somebody answers where a command would start a server."""


def variables_of_commands(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what commands get of an environment: the same in the first look at a server and in every launch.

    A rank has no others than these, and some of its own, which are not for programs of other people.
    """
    kept = kept_variables(environment)
    return {n: v for n, v in kept.items() if n not in OWN and not n.startswith("PACELINE_")}


@contextlib.contextmanager
def served(side: Side, log: Path) -> Iterator[str]:
    """Give the address of a side's server for the length of a ``with``.

    Args:
        side: Whose server.
        log: File for what a command writes.

    Raises:
        TakenError: Somebody answers at the address already.
        NoServerError: The command could not be started, ended, or its server was not ready in time.
    """
    behaviour = side.mock
    if behaviour is not None:
        with MockServer(behaviour) as server:
            yield server.url
        return
    if not side.start:
        yield side.url
        return
    if is_ready(side.url, side.tls):
        raise TakenError(
            f"somebody answers at {side.url} already, before '{side.start}': another server, or one that did not end"
        )
    with log.open("ab") as said:
        try:
            process = subprocess.Popen(
                [*SHELL, shell_line(side.start)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=side.folder or None,
                env=variables_of_commands(os.environ),
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - two system calls, and no lock is taken
            )
        except (OSError, ValueError) as error:
            raise NoServerError(f"'{side.start}' cannot be started: {error}") from error
    with _guarded(side, process.pid):
        try:
            _wait_until_ready(side, process, log)
            yield side.url
        finally:
            _end(side, process, log)


@contextlib.contextmanager
def _guarded(side: Side, group: int) -> Iterator[None]:
    """Have a server ended by another process if this one is killed within a ``with``."""
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", guard_script.__file__, str(group), shell_line(side.stop)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=side.folder or None,
        env=variables_of_commands(os.environ),
        start_new_session=True,
    )
    assert guard.stdin is not None
    try:
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):  # somebody ended the guard
            guard.stdin.write(b".")
            guard.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            guard.stdin.close()
        guard.wait()


def outlives(side: Side) -> bool:
    """Return whether a server that was ended still answers."""
    return bool(side.start) and is_ready(side.url, side.tls)


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
                [*SHELL, shell_line(side.stop)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=side.folder or None,
                env=variables_of_commands(os.environ),
                timeout=END_S,
                check=False,
            )
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # Containers and services go on for a moment, and the next server may want the same port.
    end = time.monotonic() + END_S
    while is_ready(side.url, side.tls) and time.monotonic() < end:
        time.sleep(ASKED_EVERY_S)


def _last_words(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2000:]
