"""What a program does first in a sandbox: become nobody, and accept limits that it cannot raise again."""

from __future__ import annotations

import ctypes
import os
import resource

from paceline.worker.sandbox.bubblewrap import NOBODY, TMP_BYTES

_PR_SET_DUMPABLE = 4
MAX_FILES, MAX_PROCESSES = 1024, 512
"""Open files, and threads of all processes."""


def enter(memory_bytes: int, user: int = NOBODY) -> None:
    """Give up what is left of the starter's rights, and bound what this process and all that it starts may take.

    Args:
        memory_bytes: Data of one process.
        user: Whom root becomes; ``NOBODY`` where this system knows no such user.

    Raises:
        OSError: It is still root.
    """
    if os.getuid() == 0:
        os.setgroups([])
        try:
            _become(user)
        except OSError:
            _become(NOBODY)
        # Changing the user made this process's own figures unreadable to itself.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, TMP_BYTES),
        (resource.RLIMIT_NOFILE, MAX_FILES),
        (resource.RLIMIT_NPROC, MAX_PROCESSES),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_DATA, memory_bytes),
    ):
        resource.setrlimit(what, (most, most))


def _become(user: int) -> None:
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
