"""Peer processes as a rank sees them: start, commands in, messages out with the time they were seen, death."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.worker.channel import Channel, ChannelClosedError, close_all
from paceline.worker.ranks.session import Session

_monotonic_ns = time.monotonic_ns
_SIOCGIFADDR = 0x8915
_DEATH = "died"
_LAUNCHER_VARIABLES = ("TORCHELASTIC_", "RANK", "WORLD_SIZE", "MASTER_", "GROUP_", "ROLE_", "LOCAL_")
"""What the elastic agent tells a rank; a peer with its own process group must not believe it."""


class ForkServer:
    """A process from which this rank's peers are forked; it ends with the rank.

    Args:
        parts: The module whose ``play`` plays peers' parts.
        log: Takes what it writes itself.
    """

    def __init__(self, parts: str, log: Path) -> None:
        # Peers make a group of their own: the launcher's variables would send them to the ranks' rendezvous.
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHER_VARIABLES)}
        self._channel, theirs = Channel.pair()
        self._lock = threading.Lock()
        with theirs, log.open("ab") as output:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "paceline.families.collectives.core.scenarios.fork_server",
                    parts,
                    str(number),
                ],
                pass_fds=(number,),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
            )

    def ask(self, descriptors: Sequence[int] = (), **request: Any) -> int:
        """Send a request and return the number that answers it; a server that is gone answers 1."""
        # A reader thread waits for each peer's end, so several threads ask on one channel: answers must match requests.
        with self._lock:
            try:
                self._channel.send(request, descriptors)
                answer, _ = self._channel.receive()
            except ChannelClosedError:
                return 1
        return int(next(iter(answer.values())))


def fork_server_of(session: Session, parts: str) -> ForkServer:
    """Return the rank's fork server for some parts, started when it is first needed."""
    key = f"fork server of {parts}"
    if key not in session.facts:
        session.facts[key] = ForkServer(
            parts, Path("logs") / f"fork-server-{session.launch}-{session.rank}.log"
        )
    found = session.facts[key]
    assert isinstance(found, ForkServer)
    return found


class PeerProcess:
    """A process that runs one part of a scenario and reports by JSON lines.

    Messages are stamped by a reader thread of this rank when they arrive, so times are the observer's, not the peer's.

    Args:
        fork_server: Forks it.
        config: What the peer is told first.
        log: Takes what it writes to standard error.
    """

    def __init__(self, fork_server: ForkServer, config: Mapping[str, Any], log: Path) -> None:
        self.messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._fork_server = fork_server
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._pid = fork_server.ask((theirs_in, theirs_out), do="start", log=str(log.absolute()))
        # Ours, or the reader would never see the end of a dead peer's output.
        close_all((theirs_in, theirs_out))
        self._input = os.fdopen(ours_out, "wb")
        self._output = os.fdopen(ours_in, "rb")
        self.alive = True
        """Until its death was seen."""
        self._reader = threading.Thread(target=self._read, daemon=True, name="peer reader")
        self._reader.start()
        self.command(config)

    def command(self, message: Mapping[str, Any]) -> None:
        """Send a command; a dead peer is not an error here, its death is a message."""
        try:
            self._input.write((json.dumps(dict(message)) + "\n").encode())
            self._input.flush()
        except (BrokenPipeError, ValueError):
            return

    def wait_for(self, kinds: str | tuple[str, ...], timeout_s: float) -> dict[str, Any] | None:
        """Return the next message of these kinds, dropping others; None when the peer died or the time is over."""
        kinds = (kinds,) if isinstance(kinds, str) else kinds
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            try:
                message = self.messages.get(timeout=left)
            except queue.Empty:
                return None
            if message["kind"] in kinds:
                return message
            if message["kind"] == _DEATH:
                # Back again: whoever waits next has to learn of the death as well.
                self.messages.put(message)
                return None
        return None

    def drain(self) -> list[dict[str, Any]]:
        """Return all messages that have arrived."""
        found: list[dict[str, Any]] = []
        while True:
            try:
                found.append(self.messages.get_nowait())
            except queue.Empty:
                return found

    def end(self) -> None:
        """Kill the peer and wait until it is gone."""
        self._fork_server.ask(do="kill", pid=self._pid)
        self._reader.join(timeout=5)
        with contextlib.suppress(OSError):
            self._input.close()

    def _read(self) -> None:
        for line in self._output:
            # Stamped before it is parsed: the time at which the rank could know.
            seen = _monotonic_ns()
            try:
                message = json.loads(line)
            except ValueError:
                continue
            self.messages.put({**message, "seen_ns": seen})
        # The output has ended, so the peer is ending: only now is its exit status worth waiting for.
        code = self._fork_server.ask(do="wait", pid=self._pid)
        self.alive = False
        self.messages.put({"kind": _DEATH, "seen_ns": _monotonic_ns(), "code": code})


def interface_address(name: str | None) -> str:
    """Return the IPv4 address of this namespace's data interface; the loopback where there is none."""
    if not name:
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            packed = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return "127.0.0.1"
    # struct ifreq: 16 bytes of name, then a sockaddr_in, whose address stands behind family and port.
    return socket.inet_ntoa(packed[20:24])
