"""Server-sent events in the bytes of a body, whatever reads the network made of them.

Lines and fields are those of the HTML Living Standard, section 9.2 (server-sent events): a byte order mark may come
first, lines end with LF, CR or both, one space behind a colon is left out, a field without a colon is empty, an event
ends with an empty line. Beyond the standard, an event that the body's end completes is told, and so is a line that
begins with a brace, which is no field of the standard; both are marked, so that readers can say so.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

EVENT_STREAM = "text/event-stream"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UNPACKED = {"gzip": 31, "x-gzip": 31, "deflate": 47}
"""Content encodings that can be read, and how zlib is told of them."""
MAX_UNPACKED_BYTES = 256 * 2**20
"""Of an answer, against few bytes that unpack to very many."""

Chunks = Sequence[tuple[int, bytes]]


@dataclass(slots=True, kw_only=True)
class ServerEvent:
    """One event with data."""

    at_ns: int = 0
    """Instant of the bytes that completed it."""
    name: str = ""
    """Of its ``event`` field; empty where it has none."""
    data: list[tuple[int, bytes]] = field(default_factory=list)
    """Its ``data`` lines, each with the instant of the bytes that completed it."""
    ended: bool = True
    """Whether an empty line ended it, and not the body."""
    bare: bool = False
    """Whether it is a line that begins with a brace, without a field's name."""


class EventReader:
    """Reads events out of a body that comes in parts."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False
        self._pairs = False
        """Whether the last line ended with CR LF."""
        self._after_return = False
        """Whether the last line ended with a CR that was the last byte: an LF that follows belongs to it."""
        self._event = ServerEvent()

    def feed(self, at_ns: int, received: bytes) -> Iterator[ServerEvent]:
        """Yield the events that these bytes complete."""
        waiting = self._rest.endswith(b"\r")
        self._rest += received
        if not self._begun:
            if BYTE_ORDER_MARK.startswith(self._rest) and self._rest != BYTE_ORDER_MARK:
                return  # too short to tell
            self._rest = self._rest.removeprefix(BYTE_ORDER_MARK)
            self._begun = True
        if self._after_return and self._rest:
            self._pairs = self._rest.startswith(b"\n")
            self._rest = self._rest.removeprefix(b"\n")
            self._after_return = False
        if not waiting and b"\n" not in received and b"\r" not in received:
            return
        for line in self._lines():
            yield from self._line(at_ns, line.rstrip(b"\r\n"))

    def _lines(self) -> list[bytes]:
        """Take whole lines; among pairs of CR and LF, a CR at the end waits for its LF."""
        lines = self._rest.splitlines(keepends=True)
        self._rest = b""
        if not lines:
            return lines
        before = lines[-2].endswith(b"\r\n") if len(lines) > 1 else self._pairs
        if not lines[-1].endswith((b"\n", b"\r")) or (lines[-1].endswith(b"\r") and before):
            self._rest = lines.pop()
        if lines:
            self._pairs = lines[-1].endswith(b"\r\n")
            self._after_return = lines[-1].endswith(b"\r") and not self._rest
        return lines

    def close(self, at_ns: int) -> Iterator[ServerEvent]:
        """Yield what the body's end leaves open: an event without an empty line behind it."""
        if self._rest:
            yield from self._line(at_ns, self._rest.rstrip(b"\r"))
            self._rest = b""
        if self._event.data:
            yield self._take(at_ns, ended=False)

    def _line(self, at_ns: int, line: bytes) -> Iterator[ServerEvent]:
        if not line:
            event = self._take(at_ns, ended=True)
            if event.data:
                yield event
            return
        if line.startswith(b"{"):
            yield ServerEvent(at_ns=at_ns, data=[(at_ns, line)], bare=True)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._event.data.append((at_ns, value))
        elif name == b"event":
            self._event.name = value.decode("utf-8", "replace")

    def _take(self, at_ns: int, *, ended: bool) -> ServerEvent:
        event, self._event = self._event, ServerEvent()
        event.at_ns, event.ended = at_ns, ended
        return event


def is_event_stream(content_type: str | None) -> bool:
    """Return whether a content type, with or without parameters, is the one of event streams."""
    return (content_type or "").partition(";")[0].strip().lower() == EVENT_STREAM


def events_of(chunks: Iterable[tuple[int, bytes]]) -> Iterator[ServerEvent]:
    """Yield the events of a whole body."""
    reader = EventReader()
    at_ns = 0
    for at_ns, received in chunks:
        yield from reader.feed(at_ns, received)
    yield from reader.close(at_ns)


def unpacked(chunks: Chunks, encoding: str | None) -> Chunks:
    """Return a body without its content encoding; each part has the instant at which it could be unpacked.

    Raises:
        ValueError: The encoding is none of ``UNPACKED``, or the bytes are not of it.
    """
    name = (encoding or "identity").strip().lower()
    if name == "identity":
        return chunks
    if name not in UNPACKED:
        raise ValueError(
            f"the answer is encoded as {name}, which nobody asked for and this client cannot read"
        )
    unpacker = zlib.decompressobj(UNPACKED[name])
    found: list[tuple[int, bytes]] = []
    size = 0
    for at_ns, received in chunks:
        packed = received
        while packed:
            try:
                part = unpacker.decompress(packed, MAX_UNPACKED_BYTES - size + 1)
            except zlib.error as error:
                raise ValueError(f"the answer is not {name}, as its header says: {error}") from error
            size += len(part)
            if size > MAX_UNPACKED_BYTES:
                raise ValueError(f"the answer unpacks to more than {MAX_UNPACKED_BYTES} bytes")
            if part:
                found.append((at_ns, part))
            packed = unpacker.unused_data
            if packed:  # a further member, as servers write that pack every event by itself
                unpacker = zlib.decompressobj(UNPACKED[name])
    return found
