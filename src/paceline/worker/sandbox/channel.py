"""The judge's end of a channel into a sandbox: what comes out of there is data of bounded size, and nothing else."""

from __future__ import annotations

import json
import secrets
import select
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from paceline.worker.case_error import CaseError
from paceline.worker.channel import Channel, ChannelClosedError
from paceline.worker.sandbox.starts import Starts

_monotonic = time.monotonic

MAX_ANSWER = 1 << 16
"""Bytes of an answer; tensors travel through shared memory."""
MAX_TEXT = 4000
MAX_NUMBER = 2.0**62
TEXTS = frozenset({"status", "reason", "detail"})
COUNTS = frozenset({"elapsed_ns", "busy_ns", "wake_ns", "weight_bytes", "kept_bytes", "changed_input"})
"""What an answer may say beside ``ok``: texts, and numbers that are not negative."""
MUST_SAY: Mapping[str, frozenset[str]] = {
    "make": frozenset({"weight_bytes"}),
    "fetch": frozenset({"changed_input"}),
    "trim": frozenset({"kept_bytes"}),
}
"""What an answer has to say, by what was asked; ``trim`` a number."""
NEVER_ABSENT = frozenset({"kept_bytes", "status", "reason"})


class ForeignAnswerError(CaseError):
    """What came out of a sandbox is no answer to what was asked."""

    def __init__(self) -> None:
        super().__init__("refused", "what came out of its sandbox is no answer to what was asked")


class ProcessStartedError(CaseError):
    """Another process was to be started in a sandbox while calls were timed."""

    def __init__(self) -> None:
        super().__init__("refused", "it starts a process of its own while calls are timed")


class StrictChannel(Channel):
    """Asks one question at a time, and takes one short answer to it."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(end)
        self._asked, self._doing = "", ""
        self._starts: Starts | None = None
        self.is_timing = False
        """Whether calls are timed now, in which no process may be started."""

    @classmethod
    def strict_pair(cls) -> tuple[StrictChannel, socket.socket]:
        """Return the judge's end and a socket to give away."""
        mine, theirs = super().pair()
        assert isinstance(mine, cls)
        return mine, theirs

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Ask; the question has a number that nobody could have guessed before."""
        self._asked, self._doing = secrets.token_hex(8), str(message.get("do"))
        super().send({**message, "id": self._asked}, descriptors)

    def receive(self, timeout_s: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """Wait for the answer.

        Raises:
            TimeoutError: None came in time, whatever was started meanwhile.
            ChannelClosedError: The other side has ended.
            ForeignAnswerError: It said what is no answer to the question.
            ProcessStartedError: It wants to start a process while calls are timed.
        """
        self._let_start(timeout_s)
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

    def receive_starts(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the first answer, which brings where to listen for starts of processes; listen from now on.

        Nothing of a candidate's has run yet on the other side.

        Raises:
            TimeoutError: None came in time.
            ChannelClosedError: The other side has ended.
            ForeignAnswerError: It said what is no answer to the question.
        """
        self._socket.settimeout(timeout_s)
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, MAX_ANSWER + 1, 1)
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if descriptors:
            self._starts = Starts(descriptors[0])
        if not data:
            raise ChannelClosedError("the other side has ended")
        return self._answer(data)

    def has_message(self, timeout_s: float) -> bool:
        """Tell whether ``receive`` would not wait: for a message, an end, or a process that may not start."""
        return bool(self._ready(timeout_s))

    def close(self) -> None:
        """Close this end, and let no process start any more."""
        self._forget_starts()
        super().close()

    def _let_start(self, timeout_s: float | None) -> None:
        """Wait for an answer, and let processes start meanwhile, or refuse them.

        Raises:
            TimeoutError: It goes on starting processes.
            ProcessStartedError: Calls are timed.
        """
        limit = None if timeout_s is None else _monotonic() + timeout_s
        while (starts := self._starts) is not None:
            left = None if limit is None else max(limit - _monotonic(), 0.0)
            ready = self._ready(left)
            if self._socket.fileno() in ready or not ready:
                return
            if limit is not None and _monotonic() > limit:
                raise TimeoutError
            if not starts.is_asking():
                # Everything there has ended.
                self._forget_starts()
            elif self.is_timing:
                raise ProcessStartedError
            else:
                starts.allow()

    def _ready(self, timeout_s: float | None) -> list[int]:
        """Wait, and return which descriptors have something to read."""
        watched = [self._socket.fileno(), *([self._starts.fileno()] if self._starts is not None else [])]
        return select.select(watched, [], [], timeout_s)[0]

    def _forget_starts(self) -> None:
        if self._starts is not None:
            self._starts.close()
            self._starts = None

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
        if not isinstance(found.get("ok"), bool):
            # Who fails may leave it out.
            found["ok"] = False
        answer = {key: _plain(key, found[key]) for key in (*TEXTS, *COUNTS) if key in found}
        must = MUST_SAY.get(self._doing, frozenset()) if found["ok"] else {"status", "reason"}
        if any(key not in answer or (key in NEVER_ABSENT and answer[key] is None) for key in must):
            raise ForeignAnswerError
        return {"ok": found["ok"], **answer}


def _plain(key: str, value: object) -> Any:
    """Return what a field says as the judge may use it: a bounded text, a bounded number, or nothing.

    Raises:
        ForeignAnswerError: It is something else.
    """
    if value is None:
        return None
    if key in TEXTS and isinstance(value, str):
        return value[:MAX_TEXT]
    # Of a number without bounds not even a float could be made; NaN is in no range.
    if key in COUNTS and _is_number(value) and 0 <= value <= MAX_NUMBER:
        return value
    raise ForeignAnswerError


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
