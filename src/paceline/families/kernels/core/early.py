"""Starts the fork server while the rank itself still imports torch; free of torch."""

from __future__ import annotations

import os
import subprocess
import sys

from paceline.worker.channel import Channel

Started = tuple[subprocess.Popen[bytes], Channel]
_waiting: list[Started] = []


def begin() -> None:
    """Start a fork server that ``take`` will hand out."""
    _waiting.append(_start())


def take() -> Started:
    """Return the fork server's process and the channel to it, started now if it was not before."""
    return _waiting.pop() if _waiting else _start()


def _start() -> Started:
    mine, theirs = Channel.pair()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "paceline.families.kernels.core.timing_process.fork_server",
            str(theirs.fileno()),
        ],
        pass_fds=[theirs.fileno()],
        env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    theirs.close()
    return process, mine
