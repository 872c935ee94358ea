"""The judge's end of a channel into a sandbox: what comes out of there is data of bounded size, and nothing else."""

from __future__ import annotations

import json
import math
import secrets
import socket
from collections.abc import Sequence
from typing import Any

from paceline.worker.case_error import CaseError
from paceline.worker.channel import Channel, ChannelClosedError

MAX_ANSWER = 1 << 16
"""Bytes of an answer; tensors travel through shared memory."""
MAX_TEXT = 4000
MAX_NUMBER = 2.0**62
FIELDS = frozenset(
    {"ok", "status", "reason", "detail", "id"}
    | {"elapsed_ns", "busy_ns", "wake_ns", "weight_bytes", "kept_bytes", "changed_input"}
)
"""What an answer may say."""


class ForeignAnswerError(CaseError):
    """What came out of a sandbox is no answer to what was asked."""

    def __init__(self) -> None:
        super().__init__("refused", "what came out of its sandbox is no answer to what was asked")


class StrictChannel(Channel):
    """Asks one question at a time, and takes one short answer to it."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(end)
        self._asked = ""

    @classmethod
    def strict_pair(cls) -> tuple[StrictChannel, socket.socket]:
        """Return the judge's end and a socket to give away."""
        mine, theirs = super().pair()
        assert isinstance(mine, cls)
        return mine, theirs

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Ask; the question has a number that nobody could have guessed before."""
        self._asked = secrets.token_hex(8)
        super().send({**message, "id": self._asked}, descriptors)

    def receive(self, timeout_s: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """Wait for the answer.

        Raises:
            TimeoutError: None came in time.
            ChannelClosedError: The other side has ended.
            ForeignAnswerError: It said what is no answer to the question.
        """
        self._socket.settimeout(timeout_s)
        try:
            # Without room for descriptors: files that are sent along are closed by the kernel.
            data = self._socket.recv(MAX_ANSWER + 1)
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if not data:
            raise ChannelClosedError("the other side has ended")
        return self._answer(data), []

    def is_closed(self) -> bool:
        """Tell whether nobody is at the other end, which then is ending or has ended."""
        # With a time limit Python would wait for data, whatever the flags say.
        self._socket.settimeout(0.0)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _answer(self, data: bytes) -> dict[str, Any]:
        try:
            found = json.loads(data) if len(data) <= MAX_ANSWER else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.pop("id", None) != self._asked:
            raise ForeignAnswerError
        return {key: _plain(value) for key, value in found.items() if key in FIELDS}


def _plain(value: object) -> Any:
    """Return a value as the judge may use it: a bounded number, a bounded text, or nothing."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value if math.isfinite(value) and abs(value) <= MAX_NUMBER else 0
    return str(value)[:MAX_TEXT] if isinstance(value, str) else None
