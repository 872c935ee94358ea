"""A fork of a rank from before it knew anything: what techniques are forked from has the rank's imports and no secrets.

Free of torch. A family begins one in its ``core/early.py``, before the rank reads its plan or draws.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from paceline.worker.channel import Channel
from paceline.worker.processes import process

STANDARD = frozenset({0, 1, 2})


def is_possible() -> bool:
    """Tell whether a fork saves anything: this process has imported torch, and not used it yet."""
    return "torch" in sys.modules


def begin(serve: Callable[[int], int]) -> tuple[int, Channel]:
    """Fork this process.

    Args:
        serve: What the fork does with the descriptor of its end of a channel; the fork ends with what it returns.

    Returns:
        The fork's process, which this one has to wait for, and this end of the channel.
    """
    mine, theirs = Channel.pair()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, mine
    try:
        mine.close()
        process.take_secrets()
        _let_go(theirs.fileno())
        # Never back into the rank's code, whatever happens: there must not be two ranks.
        os._exit(serve(theirs.detach()))
    finally:
        os._exit(1)


def _let_go(kept: int) -> None:
    """Let go of what the rank had open, as a new program would.

    Descriptors stay taken, by the null device: objects of the rank that close theirs later close nothing else.
    """
    null = os.open(os.devnull, os.O_RDWR)
    # a list, so that the folder's own is closed again
    for entry in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(entry.name)
        if descriptor not in STANDARD | {kept, null} and entry.is_symlink():
            os.dup2(null, descriptor)
    os.close(null)
