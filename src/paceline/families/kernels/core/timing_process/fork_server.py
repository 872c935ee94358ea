"""Starts timing processes quickly: forks them from a process that has imported torch and done nothing else.

``python -m paceline.families.kernels.core.timing_process.fork_server FD``. A fork is safe only while no thread
pool and no accelerator was touched, so this process never computes. It adopts whatever these leave behind, and ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from paceline.worker.channel import Channel, ChannelClosedError, close_all
from paceline.worker.processes import process

_PR_SET_CHILD_SUBREAPER = 36
MAX_LOG_BYTES = 64 << 20
"""A timing process's prints beyond this are lost."""
MAX_COMPILER_BYTES = 4 << 30
"""What a file of a compiler's cache may reach (precompiled headers are large)."""


def main(arguments: list[str]) -> int:
    """Serve requests for timing processes until the rank that asked for this process is gone."""
    process.die_with_parent()
    # Orphans of timing processes become children of this one instead of init's, so that it can find and end them.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    channel = Channel(socket.socket(fileno=int(arguments[0])))
    from paceline.families.kernels.core.timing_process import server  # noqa: PLC0415 - imports torch, once for all

    own = os.getpid()
    while True:
        try:
            message, descriptors = channel.receive()
        except ChannelClosedError:
            return 0
        if message["do"] == "start":
            process.require_untouched_accelerators()
            pid = os.fork()
            if pid == 0:
                _become(server.serve, message, descriptors, channel, own)
            close_all(descriptors)
            channel.send({"pid": pid})
        else:
            channel.send({"status": _end(int(message["pid"]))})


def _become(
    serve: Any, message: dict[str, Any], descriptors: list[int], channel: Channel, parent: int
) -> None:
    """Turn this fork into a timing process; never returns."""
    code = 1
    try:
        # A group of its own, which can be killed whole.
        os.setsid()
        process.die_with_parent(parent)
        process.redirect_output(Path(message["log"]))
        channel.close()
        # A core file of a process with torch and its draws would fill the disk.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_LOG_BYTES, MAX_COMPILER_BYTES))
        process.limit_memory(message["memory"])
        process.seed_generators()
        code = serve(Channel(socket.socket(fileno=descriptors[0])), message)
    except BaseException:  # nothing may get out of this function, and whatever it was belongs into the log
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _end(pid: int) -> int:
    """Kill a timing process with all that it started; return how it had ended: an exit code, or minus a signal."""
    status: int | None = None
    # First: how it ended by itself must not be replaced by the signal that follows.
    found, raw = os.waitpid(pid, os.WNOHANG)
    if found:
        status = os.waitstatus_to_exitcode(raw)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if status is None:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _end_strays()
    return status


def _end_strays() -> None:
    """Kill processes that ended ones left behind: whatever is a child of this process and leads no group of its own."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for child in (int(c) for c in children):
        with contextlib.suppress(OSError):
            if os.getpgid(child) != child:
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, os.WNOHANG)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
