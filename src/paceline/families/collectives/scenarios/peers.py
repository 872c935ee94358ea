"""Peer processes as a rank sees them: start, commands in, messages out with the time they were seen, death."""

from __future__ import annotations

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_monotonic_ns = time.monotonic_ns
_SIOCGIFADDR = 0x8915
_DEATH = "died"
_LAUNCHER_VARIABLES = ("TORCHELASTIC_", "RANK", "WORLD_SIZE", "MASTER_", "GROUP_", "ROLE_", "LOCAL_")
"""What the elastic agent tells a rank; a peer with its own process group must not believe it."""


class PeerProcess:
    """A child that runs one part of a scenario and reports by JSON lines.

    Messages are stamped by a reader thread of this rank when they arrive, so times are the observer's, not the peer's.
    """

    def __init__(self, config: Mapping[str, Any], log: Path) -> None:
        self.messages: queue.Queue[dict[str, Any]] = queue.Queue()
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHER_VARIABLES)}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "paceline.families.collectives.scenarios.peer"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment,
            )
        self._reader = threading.Thread(target=self._read, daemon=True, name="peer reader")
        self._reader.start()
        self.command(config)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def command(self, message: Mapping[str, Any]) -> None:
        """Send a command; a dead peer is not an error here, its death is a message."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(dict(message)) + "\n").encode())
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return

    def wait_for(self, kind: str, timeout_s: float) -> dict[str, Any] | None:
        """Return the next message of a kind, dropping others; None when the peer died or the time is over."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            try:
                message = self.messages.get(timeout=left)
            except queue.Empty:
                return None
            if message["kind"] == kind:
                return message
            if message["kind"] == _DEATH:
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

    @property
    def alive(self) -> bool:
        """True while the child runs."""
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the child and wait until it is gone."""
        if self.alive:
            self._process.kill()
        self._process.wait()
        self._reader.join(timeout=5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            seen = _monotonic_ns()
            try:
                message = json.loads(line)
            except ValueError:
                continue
            self.messages.put({**message, "seen_ns": seen})
        self._process.wait()
        self.messages.put({"kind": _DEATH, "seen_ns": _monotonic_ns(), "code": self._process.returncode})


def interface_address(name: str | None) -> str:
    """Return the IPv4 address of this namespace's data interface; the loopback where there is none."""
    if not name:
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            packed = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return "127.0.0.1"
    return socket.inet_ntoa(packed[20:24])
