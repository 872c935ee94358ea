"""Starts the nursery while the rank itself still imports torch; free of torch."""

from __future__ import annotations

import os
import subprocess
import sys

from paceline.worker.channel import Channel

Started = tuple[subprocess.Popen[bytes], Channel]
_waiting: list[Started] = []


def begin() -> None:
    """Start a nursery that ``take`` will hand out."""
    _waiting.append(_start())


def take() -> Started:
    """Return the nursery's process and the channel to it, started now if it was not before."""
    return _waiting.pop() if _waiting else _start()


def _start() -> Started:
    mine, theirs = Channel.pair()
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline.families.kernels.nursery", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    theirs.close()
    return process, mine
