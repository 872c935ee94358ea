"""Ends a server when whoever started it is gone, be it by a key, a signal, a time limit or a closed terminal.

Run as a file, ``python -I -S guard.py GROUP STOP``, with a pipe as its input, whose other end the starter holds. A byte
says that the starter has ended the server by itself; the end of the pipe without one, that there is no starter.
Then the command ``STOP`` is called, if there is one, and what is left of the process group is ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

END_S = 30.0
ASKED_EVERY_S = 0.1


def main(group: int, stop: str) -> None:
    """Wait for the starter, and end the server where it did not.

    Args:
        group: Process group of the server.
        stop: A line of the shell; empty for none.
    """
    if os.read(0, 1):
        return
    if stop:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                ["/bin/sh", "-c", stop],
                stdin=subprocess.DEVNULL,
                timeout=END_S,
                check=False,
            )
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        end = time.monotonic() + END_S
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(ASKED_EVERY_S)
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
