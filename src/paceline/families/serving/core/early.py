"""Processes in which techniques answer, started in a tenth of the time: forks of a rank from before it knew anything.

Free of torch. A forked rank has imported torch already, so a fork of it need not. That process is made before the rank
draws or reads what techniques may not know, computes nothing, and forks once for every technique that is asked. Another
rank starts an interpreter each time.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from paceline.worker.channel import Channel, ChannelClosedError, close_all
from paceline.worker.processes import early_fork, process

FORK_S = 30.0
"""Longest time that a fork takes."""
_waiting: list[Channel] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended."""

    code: int
    """Its exit code, or minus a signal."""
    output: str
    errors: str


def begin() -> None:
    """Make the process to fork from, where this one has imported torch; call it before anything is drawn or read."""
    if early_fork.is_possible():
        _, channel = early_fork.begin(_serve)
        _waiting.append(channel)


def run(module: str, document: str, limit_s: float) -> Ended:
    """Run a module as a program in a process of its own.

    Args:
        module: Its name.
        document: What it reads.
        limit_s: After so many seconds it is killed.

    Raises:
        ChannelClosedError: The process to fork from was killed.
        TimeoutError: It took longer.
    """
    if not _waiting:
        return _spawned(module, document, limit_s)
    try:
        return _forked(_waiting[-1], module, document, limit_s)
    except ChannelClosedError:
        # what it would say next may be about this request
        _waiting.pop().close()
        raise


def _spawned(module: str, document: str, limit_s: float) -> Ended:
    command = [sys.executable, "-m", module]
    try:
        done = subprocess.run(
            command, input=document, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
    return Ended(code=done.returncode, output=done.stdout, errors=done.stderr)


def _forked(server: Channel, module: str, document: str, limit_s: float) -> Ended:
    # Files in memory in the place of pipes: nobody has to read while the other side writes.
    files = [os.memfd_create(name) for name in ("asked", "answered", "said")]
    try:
        with os.fdopen(os.dup(files[0]), "w", encoding="utf-8") as asked:
            asked.write(document)
        os.lseek(files[0], 0, os.SEEK_SET)
        server.send({"module": module}, files)
        try:
            pid = int(server.receive(FORK_S)[0]["pid"])
        except TimeoutError:
            raise ChannelClosedError(f"it was not forked within {FORK_S:g} s") from None
        try:
            code = int(server.receive(limit_s)[0]["status"])
        except TimeoutError:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
            server.receive()
            raise
        return Ended(code=code, output=_text(files[1]), errors=_text(files[2]))
    finally:
        close_all(files)


def _text(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read().decode("utf-8", "replace")


def _serve(descriptor: int) -> int:
    """Fork for every request until the rank is gone."""
    process.die_with_parent()
    process.set_name("paceline:forks")
    channel = Channel(socket.socket(fileno=descriptor))
    while True:
        try:
            message, descriptors = channel.receive()
        except ChannelClosedError:
            return 0
        pid = os.fork()
        if pid == 0:
            _become(str(message["module"]), descriptors, channel)
        close_all(descriptors)
        channel.send({"pid": pid})
        channel.send({"status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])})


def _become(module: str, descriptors: Sequence[int], channel: Channel) -> None:
    """Turn this fork into a program; never returns."""
    code = 1
    try:
        channel.close()
        for given, own in zip(descriptors, (0, 1, 2), strict=True):
            os.dup2(given, own)
        close_all(descriptors)
        sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        process.seed_generators()
        sys.argv = [module]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Without cleaning up: exit handlers and buffers are the rank's, whose image this is.
        os._exit(code)
