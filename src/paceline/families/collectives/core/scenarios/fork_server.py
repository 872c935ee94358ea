"""Fork server: starts peers quickly, as forks of a process that has imported what they need.

A rank starts it: ``python -m paceline.families.collectives.core.scenarios.fork_server MODULE DESCRIPTOR``.

``MODULE`` has a function ``prepare()``, called once, which starts no thread, and ``play(config, say, commands)``, the
body of a peer. A peer's first line of standard input is its configuration, which names its part; further lines are
commands. Every message to the rank is one JSON line on standard output, with the time at which it was said.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from paceline.worker.channel import Channel, ChannelClosedError, close_all
from paceline.worker.processes import process

_monotonic_ns = time.monotonic_ns
EXIT_S = 2.0
"""Longest time from when a peer closes its output until it must be gone."""
Play = Callable[[dict[str, Any], Callable[..., None], TextIO], int]


def main(arguments: Sequence[str]) -> int:
    """Serve requests for peers until the rank that asked for this process is gone."""
    process.die_with_parent()
    channel = Channel(socket.socket(fileno=int(arguments[1])))
    parts = importlib.import_module(arguments[0])  # torch from here on
    parts.prepare()
    # A process can be waited for once only, and its number may then be given to another: answers come from here.
    ended: dict[int, int] = {}
    server = os.getpid()
    while True:
        try:
            message, descriptors = channel.receive()
        except ChannelClosedError:
            return 0
        if message["do"] == "start":
            pid = os.fork()
            if pid == 0:
                _become(parts.play, str(message["log"]), descriptors, channel, server)
            close_all(descriptors)
            channel.send({"pid": pid})
            continue
        pid = int(message["pid"])
        if pid not in ended:
            ended[pid] = _end(pid, EXIT_S if message["do"] == "wait" else 0.0)
        channel.send({"status": ended[pid]})


def _become(play: Play, log: str, descriptors: Sequence[int], channel: Channel, server: int) -> None:
    """Turn this fork into a peer; never returns."""
    code = 1
    try:
        process.die_with_parent(server)
        process.seed_generators()
        # The peer must not hold the server's end open, or the rank would never learn that the server has died.
        channel.close()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        # Whatever the technique prints goes to the log; what the peer says has a descriptor of its own.
        for given, own in ((descriptors[0], 0), (output, 1), (output, 2)):
            os.dup2(given, own)
        commands = os.fdopen(0, "r")
        said = os.fdopen(descriptors[1], "w", buffering=1)

        def say(kind: str, **fields: Any) -> None:
            said.write(json.dumps({"kind": kind, "said_ns": _monotonic_ns(), **fields}) + "\n")
            said.flush()

        code = play(json.loads(commands.readline()), say, commands)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Without cleaning up: exit handlers and buffers are the fork server's, whose image this is.
        os._exit(code)


def _end(pid: int, patience_s: float) -> int:
    """Return how a peer ended: an exit code, or minus a signal; it is killed when it does not end by itself."""
    deadline = time.monotonic() + patience_s
    while True:
        found, raw = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(raw)
        if time.monotonic() >= deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(0.001)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
