"""What the controller does around containers on its own host: their output, and the folder that they write.

What is in a container may be hostile: nothing here follows a link that it could have made, waits for what it could
withhold, or keeps more than a stated part of what it prints.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.errors import InfrastructureError

LOG_BYTES = 4 << 20
"""What is kept of a container's output."""
TAIL_BYTES = 3000
CHUNK_BYTES = 64 * 1024
HEADER_BYTES = 8
JOIN_S = 5.0


class Stream(threading.Thread):
    """Holds a container's input open and reads its output until it ends.

    Args:
        attached: The SDK's socket, attached before the container starts.
        path: Where the beginning of the output goes.
    """

    def __init__(self, attached: Any, path: Path) -> None:
        super().__init__(name=path.stem, daemon=True)
        self._attached = attached
        self._socket: socket.socket = getattr(attached, "_sock", attached)
        self._socket.settimeout(None)
        self._tail: deque[bytes] = deque()
        self._kept = 0
        self.ended = threading.Event()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._file = os.open(path, flags, 0o644)
        except OSError as error:
            raise InfrastructureError(f"{path}: {error.strerror}") from error

    def run(self) -> None:
        """Read until the end; what is over the limit is read and dropped, so that nobody waits for us."""
        try:
            while header := self._read(HEADER_BYTES):
                left = int.from_bytes(header[4:8], "big")
                while left and (data := self._read(min(left, CHUNK_BYTES))):
                    left -= len(data)
                    self._keep(data)
        except OSError:
            pass
        finally:
            self.ended.set()

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            data = self._socket.recv(size - len(found))
            if not data:
                return b""
            found += data
        return found

    def _keep(self, data: bytes) -> None:
        self._tail.append(data[-TAIL_BYTES:])
        while sum(map(len, self._tail)) - len(self._tail[0]) > TAIL_BYTES:
            self._tail.popleft()
        room = LOG_BYTES - self._kept
        if room > 0:
            self._kept += len(data)
            more = b"" if len(data) <= room else f"\n… more than {LOG_BYTES} B are not kept\n".encode()
            with contextlib.suppress(OSError):
                os.write(self._file, data[:room] + more)

    def tail(self) -> str:
        """Return the end of the output."""
        return b"".join(list(self._tail))[-TAIL_BYTES:].decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Let go of the container, which ends if it has not."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self.is_alive():
            self.join(JOIN_S)
        with contextlib.suppress(OSError):
            self._attached.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@dataclass(slots=True, kw_only=True)
class Box:
    """One container of a run."""

    identity: str
    node: int
    stream: Stream
    code: int | None = None
    """Exit code, once it is known."""
    ended_s: float | None = None
    """When it was first seen to have ended badly."""

    @property
    def ending(self) -> bool:
        """Whether it has gone silent and nobody knows yet how."""
        return self.code is None and self.stream.ended.is_set()


def hand_over(job: Path, user: str) -> None:
    """Give a job folder to the container's user; what it must not change is mounted read-only.

    Only root can give files away; anybody else's containers run as that user, who owns the folder anyhow.
    """
    if os.geteuid():
        return
    owner, group = (int(part) for part in user.split(":"))
    os.chown(job, owner, group)
    for folder, folders, files in os.walk(job):
        for name in (*folders, *files):
            os.chown(Path(folder, name), owner, group, follow_symlinks=False)


def folder_bytes(folder: Path) -> int:
    """Return what lies in a folder on the disk; links are not followed."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(Path(place, name)).st_blocks * 512
    return total
