"""A running sandbox: started, its processes found from outside, and ended whole."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from paceline.worker.case_error import CaseError
from paceline.worker.sandbox import seccomp, stopping
from paceline.worker.sandbox.bubblewrap import BUBBLEWRAP, Mounted, command
from paceline.worker.sandbox.channel import StrictChannel

START_S = 60.0
END_S = 5.0
POLL_S = 0.005
FIRST_USER = 1_000_000_000
"""Above all users that a system has or hands out to containers."""
OUT_OF_MEMORY_SCORE = "500"
MAX_PRINTED, PART_BYTES = 4 << 20, 1 << 16
"""Bytes of what a program prints that are kept; of the rest nothing is."""


class Sandbox:
    """A running sandbox: its channel, its processes, and how it ended."""

    def __init__(self, kind: str, mounted: Mounted, program: Sequence[str], log: Path) -> None:
        """Start a program, whose last argument is the descriptor of its end of the channel.

        Raises:
            CaseError: It could not be started.
        """
        self.kind = kind
        mine, theirs = StrictChannel.strict_pair()
        info, told = os.pipe()
        filter_ = seccomp.descriptor()
        self._printed, printing = Printed.into(log)
        given = [theirs.fileno(), told, *([filter_] if filter_ is not None else [])]
        words = [*command(kind, mounted, info=told, filter_=filter_), *program, str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(
                words, pass_fds=given, stdin=subprocess.DEVNULL, stdout=printing, stderr=printing
            )
        finally:
            theirs.close()
            for descriptor in (told, printing, *([filter_] if filter_ is not None else [])):
                os.close(descriptor)
        self.channel: StrictChannel = mine
        try:
            self.init = _first_process(info)
            self.pid = self._computing() if kind == BUBBLEWRAP else self.init
        except CaseError:
            self.end()
            raise
        # One for each sandbox: the kernel counts processes, pipes and signals of a user, wherever they are.
        self.user = FIRST_USER + self.init
        # The first to go where the machine's memory ends; what root has set, nobody there lowers.
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.pid}/oom_score_adj").write_text(OUT_OF_MEMORY_SCORE)

    def _computing(self) -> int:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            found = stopping.children(self.init)
            if found:
                return found[0]
            time.sleep(POLL_S)
        raise CaseError("infrastructure", "no process came up in the sandbox")

    def end(self, *, is_ending: bool = False) -> int | None:
        """End everything in the sandbox; return the program's exit code, or minus its signal, where it ended itself.

        Args:
            is_ending: Whether it has closed its channel, and how it ended will be known soon.
        """
        ended_itself = True
        try:
            self._process.wait(END_S if is_ending or self._has_ended() else 0)
        except subprocess.TimeoutExpired:
            ended_itself = False
        with contextlib.suppress(OSError, AttributeError):
            os.kill(self.init, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._process.kill()
        code = self._process.wait()
        self._printed.wait(END_S)
        if not ended_itself:
            return None
        return 128 - code if code > 128 else code

    def _has_ended(self) -> bool:
        pid = getattr(self, "pid", None)
        return pid is None or stopping.state(pid, str(pid)) in "ZX"


class Printed:
    """What is printed in a sandbox, up to a limit: no file of the job's is open there, and no disk is kept busy."""

    def __init__(self, end: int, log: Path) -> None:
        self._end, self._log = end, log
        self._copying = threading.Thread(target=self._copy, name="printed", daemon=True)
        self._copying.start()

    @classmethod
    def into(cls, log: Path) -> tuple[Printed, int]:
        """Begin to copy into a file; return this, and a descriptor to give away."""
        log.touch()
        end, given = os.pipe()
        return cls(end, log), given

    def wait(self, timeout_s: float) -> None:
        """Wait until nobody can print any more and all is in the file."""
        self._copying.join(timeout_s)

    def _copy(self) -> None:
        left = MAX_PRINTED
        with os.fdopen(self._end, "rb", buffering=0) as source, self._log.open("ab", buffering=0) as file:
            while data := source.read(PART_BYTES):
                # Whoever prints goes on where the disk is full.
                with contextlib.suppress(OSError):
                    file.write(data[:left])
                left = max(left - len(data), 0)


def _first_process(info: int) -> int:
    """Read the number of a sandbox's first process, as its starter tells it.

    Raises:
        CaseError: It ended before it told one.
    """
    text = b""
    with open(info, "rb", buffering=0) as file:
        while b"}" not in text:
            part = file.read(4096)
            if not part:
                raise CaseError("infrastructure", "bubblewrap ended before it had made a sandbox")
            text += part
    return int(json.loads(text)["child-pid"])
