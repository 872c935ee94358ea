"""One timed run a host: a lock that the kernel drops with its holder, and a note that says who that is.

The lock is an ``flock`` on one file of the host's state folder: a run that dies, however it dies, holds nothing any
more, and what its note says is not believed without the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.account import user_name
from paceline.base.errors import InfrastructureError
from paceline.base.units import format_duration
from paceline.drivers.machine.state import open_shared, state_folder
from paceline.records.identity import utc

LEASE = "lease.json"
POLL_S = 0.2
MAX_NOTE_BYTES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a machine, as its note says."""

    pid: int | None
    user: str | None
    what: str | None
    """The command."""
    run: str | None
    """The run that is being measured, once there is one."""
    since: str | None

    def text(self) -> str:
        """Say it in one line."""
        run = f", run {self.run}" if self.run else ""
        return f"'{self.what or 'unknown'}' of {self.user or 'unknown'} (pid {self.pid}, since {self.since}{run})"


class Lease:
    """A held lease; ``release`` gives it back, and so does the end of the process."""

    def __init__(self, descriptor: int, what: str) -> None:
        self._descriptor = descriptor
        self._note: dict[str, Any] = {
            "pid": os.getpid(),
            "user": user_name(),
            "what": what,
            "since": utc(),
            "run": None,
        }
        self.announce(None)

    def announce(self, run: str | None) -> None:
        """Say which run is being measured."""
        self._note["run"] = run
        data = json.dumps(self._note).encode()[:MAX_NOTE_BYTES]
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)

    def release(self) -> None:
        """Give the machine back."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def holder(folder: Path | None = None) -> Holder | None:
    """Return who holds this machine, or None when nobody does."""
    path = (folder or state_folder()) / LEASE
    if not path.exists():
        return None
    descriptor = open_shared(path)
    try:
        if _locked(descriptor):
            return None
        return _read(descriptor)
    finally:
        os.close(descriptor)


def take(
    what: str, *, wait_s: float, say: Callable[[str], None] = lambda text: None, folder: Path | None = None
) -> Lease:
    """Take the lease of this machine.

    Args:
        what: The command that wants it, for others to read.
        wait_s: How long to wait for another holder; 0 refuses at once.
        say: Told once who is waited for.
        folder: The state folder.

    Raises:
        InfrastructureError: Another one held it all the time.
    """
    descriptor = open_shared((folder or state_folder()) / LEASE)
    deadline = time.monotonic() + wait_s
    told = False
    try:
        while not _locked(descriptor):
            other = _read(descriptor)
            if time.monotonic() >= deadline:
                waited = f" after waiting {format_duration(wait_s)}" if wait_s else ""
                raise InfrastructureError(
                    f"this machine is being measured by {other.text()}; two runs at once would measure each "
                    f"other, so this one does not begin{waited}\n"
                    "  fix: --wait=2h waits longer; --allow-concurrent measures all the same, and the record says so"
                )
            if not told:
                say(
                    f"waiting up to {format_duration(wait_s)} for {other.text()}: two runs at once would measure "
                    "each other (--allow-concurrent measures all the same)"
                )
                told = True
            time.sleep(min(POLL_S, max(deadline - time.monotonic(), 0.0)))
        return Lease(descriptor, what)
    except BaseException:
        os.close(descriptor)
        raise


def _locked(descriptor: int) -> bool:
    """Try to lock; False when another one has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> Holder:
    """Read the note; one that is not there yet, or makes no sense, names nobody."""
    try:
        note = json.loads(os.pread(descriptor, MAX_NOTE_BYTES, 0))
    except ValueError:
        note = {}
    facts: Mapping[str, Any] = note if isinstance(note, dict) else {}
    pid = facts.get("pid")
    texts = {k: str(facts[k]) if facts.get(k) else None for k in ("user", "what", "run", "since")}
    return Holder(pid=pid if isinstance(pid, int) else None, **texts)
