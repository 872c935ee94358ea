"""A connection that carries one call at a time and notes when bytes came.

Parsing of HTTP is left to llhttp (httptools); what the events in the body mean is read from the log afterwards, so that
receiving costs as little as it can.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from typing import Any, cast

from paceline.base.counting import number_of
from paceline.base.errors import PrerequisiteError
from paceline.families.serving.core.load.log.entries import COMPLETE, Entry
from paceline.families.serving.core.load.log.events import read_stream
from paceline.families.serving.core.load.log.framing import EVENT_STREAM, is_event_stream, unpacked
from paceline.families.serving.core.load.log.reasons import reason_of
from paceline.families.serving.core.load.sending.redirects import REDIRECTS, Origin

_clock_ns = time.monotonic_ns

MAX_TOKEN_BYTES = 16 * 2**10
SWITCHED = 101
"""The one informational status that is an answer: the server goes on with another protocol."""
SPARE_TOKENS = 64
"""An answer may have ``MAX_TOKEN_BYTES`` for each token that was asked for, and for so many more."""


def response_parser() -> Callable[[Any], Any]:
    """Return the class that parses responses.

    Raises:
        PrerequisiteError: httptools is not installed.
    """
    try:
        import httptools  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise PrerequisiteError(
            "the load generator needs httptools", fix="pip install 'paceline[serve]'"
        ) from error
    return httptools.HttpResponseParser


class Connection(asyncio.Protocol):
    """A connection to a server.

    Args:
        parser: What ``response_parser`` returned.
        origin_ns: Instant that a log's times count from.
        freed: Called when the connection can carry another call, or with False when it is gone.
        to: What it is a connection to.
    """

    def __init__(
        self,
        parser: Callable[[Any], Any],
        origin_ns: int,
        freed: Callable[[Connection, bool], None],
        to: Origin | None = None,
    ) -> None:
        self.to = to
        self._make_parser, self._origin_ns, self._freed = parser, origin_ns, freed
        self._parser: Any = None
        self._transport: asyncio.Transport | None = None
        self._file: int | None = None
        self._entry: Entry | None = None
        self._ended: Callable[[Entry], None] | None = None
        self._bytes = 0
        self._now = 0
        self._delimited = False
        self.connected_ns: int | None = None
        self.calls = 0
        """How many it has carried."""
        self.usable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that the connection stands."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not say that they are
        # Written past the transport only without TLS, whose records the transport has to make.
        if transport.get_extra_info("sslcontext") is None:
            self._file = transport.get_extra_info("socket").fileno()
        self.connected_ns = _clock_ns() - self._origin_ns
        self.usable = True

    def send(self, entry: Entry, request: bytes, ended: Callable[[Entry], None]) -> None:
        """Send a call; ``ended`` is called when it has ended, however."""
        assert self._transport is not None
        self._entry, self._ended = entry, ended
        self._bytes, self._delimited = 0, False
        # A new one for each call: a parser that met malformed bytes keeps its error.
        self._parser = self._make_parser(self)
        if self.calls == 0:
            entry.connected_ns = self.connected_ns
        self.calls += 1
        entry.tries += 1
        entry.sent_bytes = len(request)
        if not entry.redirects:  # the way round that a redirect takes is in the call's time
            # Before the write, so that what the kernel takes for it counts as the server's time and not as lateness.
            entry.sent_ns = _clock_ns() - self._origin_ns
        rest = self._write_now(request)
        if rest:
            self._transport.write(rest)

    def _write_now(self, request: bytes) -> bytes:
        """Give bytes to the kernel, and return those that it did not take.

        uvloop's transports write when all that is due in a turn of the loop is done, which would make the instant of
        sending untrue. Nothing else is in a transport's buffer, for the last call has ended.
        """
        if self._file is None:
            return request
        try:
            return request[os.write(self._file, request) :]
        except OSError:  # full, or gone; the transport finds out which
            return request

    def data_received(self, data: bytes) -> None:
        """Note what came, and when."""
        # Before anything is parsed: parsing is the client's time.
        now = _clock_ns() - self._origin_ns
        entry = self._entry
        if entry is None:  # bytes that belong to no call: the connection cannot be trusted any more
            self.abandon()
            return
        self._now = now
        try:
            self._parser.feed_data(data)
        except Exception as error:  # of the parser or of what it calls; each is an answer that is not HTTP
            self.end("malformed", f"{type(error).__name__}: {error}")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the type of the answer, and whether its end can be told from the connection's."""
        key = name.lower()
        if key in (b"content-length", b"transfer-encoding"):
            self._delimited = True
        elif self._entry is None:
            return
        elif key == b"content-type":
            self._entry.content_type = value.decode("latin-1")
        elif key == b"content-encoding":
            self._entry.encoding = value.decode("latin-1")
        elif key == b"location":
            self._entry.location = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Keep the status."""
        if self._entry is not None:
            self._entry.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """Keep a part of the answer."""
        entry = self._entry
        if entry is None:
            return
        self._bytes += len(body)
        # A server that never stops writing would fill the client's memory and end the whole run.
        most = MAX_TOKEN_BYTES * (entry.asked_tokens + SPARE_TOKENS)
        if self._bytes > most:
            self.end("too_long", f"more than {most} bytes for {number_of(entry.asked_tokens, 'token')}")
            return
        entry.chunks.append((self._now, body))

    def on_message_complete(self) -> None:
        """End the call."""
        entry = self._entry
        if entry is None:
            return
        status = entry.status or 0
        if 100 <= status < 200 and status != SWITCHED:
            entry.informational.append(status)
            entry.status = entry.content_type = entry.encoding = entry.location = None
            self._delimited = False
            return
        keep_alive = self._parser.should_keep_alive()
        if status in REDIRECTS and entry.location:
            self._finish("redirected", f"{status} to {entry.location}", keep_alive=keep_alive)
        elif not 200 <= status < 300:
            self._finish("status", f"{status}: {_reason(entry)}", keep_alive=keep_alive)
        elif is_event_stream(entry.content_type) or _holds_events(entry):
            self._finish(COMPLETE, None, keep_alive=keep_alive)
        else:
            said = f"{entry.content_type} instead of {EVENT_STREAM}: {_reason(entry)}"
            self._finish("content_type", said, keep_alive=False)

    def connection_lost(self, error: Exception | None) -> None:
        """End the call that was under way."""
        self.usable, self._file = False, None
        if self._entry is None:
            self._freed(self, False)
            return
        self._now = _clock_ns() - self._origin_ns
        if isinstance(error, ssl.SSLError):
            self._finish("tls", str(error), keep_alive=False)
        elif error is None and self._entry.status is not None and not self._delimited:
            self.on_message_complete()  # an answer without a length ends with its connection
        else:
            self._finish(
                "disconnected", str(error) if error else "the server closed the connection", keep_alive=False
            )

    def end(self, ending: str, detail: str | None) -> None:
        """End the call under way from this side, and the connection with it."""
        self._now = _clock_ns() - self._origin_ns
        self._finish(ending, detail, keep_alive=False)

    def abandon(self) -> None:
        """Close the connection."""
        self.usable, self._file = False, None
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, ending: str, detail: str | None, *, keep_alive: bool) -> None:
        entry, ended = self._entry, self._ended
        if entry is None or ended is None:
            return
        # Forgotten first: closing the connection calls back in here, and a call must end once.
        self._entry = self._ended = None
        entry.ending, entry.detail = ending, detail
        entry.ended_ns = self._now
        if not keep_alive:
            self.abandon()
        ended(entry)
        self._freed(self, keep_alive and self.usable)


def _reason(entry: Entry) -> str:
    """Return what an answer says that is no stream."""
    try:
        chunks = unpacked(entry.chunks, entry.encoding)
    except ValueError as error:
        return str(error)
    return reason_of(b"".join(body for _, body in chunks))


def _holds_events(entry: Entry) -> bool:
    """Return whether an answer of another content type is a stream of events all the same."""
    return bool(read_stream(entry.chunks, encoding=entry.encoding).pieces)


class SlowedConnection(Connection):
    """A connection that computes for a while whenever something comes, as slow clients do."""

    def __init__(
        self,
        parser: Callable[[Any], Any],
        origin_ns: int,
        freed: Callable[[Connection, bool], None],
        to: Origin | None,
        handicap_s: float,
    ) -> None:
        super().__init__(parser, origin_ns, freed, to)
        self._handicap_ns = round(handicap_s * 1e9)

    def data_received(self, data: bytes) -> None:
        """Waste time, then note what came."""
        until = _clock_ns() + self._handicap_ns
        while _clock_ns() < until:
            pass
        super().data_received(data)
