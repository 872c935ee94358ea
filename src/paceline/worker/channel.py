"""Messages between the process that judges and the one that computes: JSON packets, file descriptors beside them."""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE = 4 << 20
_dumps, _loads = json.dumps, json.loads


class ChannelClosedError(Exception):
    """The other side is gone."""


class Channel:
    """One end of a packet socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """Return one end as a channel and the other as a socket to give away."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (mine, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE)
        return cls(mine), theirs

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send one message.

        Raises:
            ChannelClosedError: Nobody listens.
        """
        try:
            socket.send_fds(self._socket, [_dumps(message).encode()], list(descriptors))
        except OSError as error:
            raise ChannelClosedError(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """Wait for one message.

        Raises:
            TimeoutError: None came in time.
            ChannelClosedError: The other side closed or died.
        """
        self._socket.settimeout(timeout_s)
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE, 4)
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if not data:
            raise ChannelClosedError("the other side has ended")
        message = _loads(data)
        if not isinstance(message, dict):
            raise ChannelClosedError("a message was not an object")
        return message, list(descriptors)

    def has_message(self, timeout_s: float) -> bool:
        """Tell whether a message is there, or the other side has ended, after waiting for it."""
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def close_all(descriptors: Sequence[int]) -> None:
    """Close file descriptors that a message brought."""
    for descriptor in descriptors:
        os.close(descriptor)
