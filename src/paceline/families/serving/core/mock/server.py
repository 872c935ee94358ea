"""The mock server's process: HTTP/1.1 by llhttp, and an alarm to the microsecond for every event."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from paceline.families.serving.core.load.sending.alarm import Alarms
from paceline.families.serving.core.mock.behaviour import Behaviour

_clock_ns = time.monotonic_ns

VOCABULARY = 4096
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def framed(body: bytes) -> bytes:
    """Return a chunk of chunked transfer coding (RFC 9112, section 7.1)."""
    return b"%x\r\n%b\r\n" % (len(body), body)


class Server:
    """All connections share a clock, places and a queue."""

    def __init__(
        self, behaviour: Behaviour, loop: asyncio.AbstractEventLoop, journal: IO[bytes] | None = None
    ) -> None:
        self.behaviour, self.alarms, self._journal = behaviour, Alarms(loop), journal
        self._first_ns: int | None = None
        self._free = behaviour.places
        self._queue: deque[Answer] = deque()
        self._num_answers = 0
        self._events: dict[tuple[int, int, bool], bytes] = {}

    def now_s(self) -> float:
        """Return seconds behind the first request."""
        if self._first_ns is None:
            self._first_ns = _clock_ns()
        return (_clock_ns() - self._first_ns) * 1e-9

    def at(self, instant_s: float, call: Any) -> None:
        """Call a function at an instant behind the first request."""
        assert self._first_ns is not None
        self.alarms.at(self._first_ns + round(instant_s * 1e9), call)

    def note(self, tokens: int) -> None:
        """Write a request down, if there is a journal."""
        if self._journal is not None:
            self._journal.write(b"%d %d\n" % (_clock_ns(), tokens))

    def enter(self, answer: Answer) -> None:
        """Serve an answer now, or when a place is free."""
        if self._free is None:
            answer.serve(self.now_s())
        elif self._free > 0:
            self._free -= 1
            answer.serve(self.now_s())
        else:
            self._queue.append(answer)

    def leave(self, answer: Answer, at_s: float) -> None:
        """Give a place on; the next one is served from the instant at which the place was due to be free."""
        if self._free is None:
            return
        if answer in self._queue:
            self._queue.remove(answer)
        elif self._queue:
            # From the due instant and not from now: else each alarm's lateness would be handed on along the queue, and
            # truth would drift.
            self._queue.popleft().serve(at_s)
        else:
            self._free += 1

    def rng(self) -> random.Random:
        """Return the random numbers of the next answer."""
        self._num_answers += 1
        # A stream for each answer: what others draw meanwhile must not move its instants.
        return random.Random(f"{self.behaviour.seed}/{self._num_answers}")

    def event(self, begin: int, count: int, *, chat: bool) -> bytes:
        """Return an event with some tokens, framed."""
        key = (begin, count, chat)
        if key not in self._events:
            ids = [(begin + i) % VOCABULARY for i in range(count)]
            text = "".join(f" t{i}" for i in ids)
            choice: dict[str, Any] = {"index": 0, "finish_reason": None}
            choice |= {"delta": {"content": text}} if chat else {"text": text}
            if self.behaviour.token_ids:
                choice["token_ids"] = ids
            # Kept: encoding JSON for every token would make the mock late at high rates.
            self._events[key] = framed(_event({"choices": [choice]}, chat=chat))
        return self._events[key]


def _event(data: dict[str, Any], *, chat: bool) -> bytes:
    kind = "chat.completion.chunk" if chat else "text_completion"
    told = {"id": "mock", "object": kind, "created": 0, "model": "mock", **data}
    return b"data: " + json.dumps(told, separators=(",", ":")).encode() + b"\n\n"


class Answer:
    """One answer, from its request to its last byte."""

    def __init__(self, server: Server, connection: Connection, asked: dict[str, Any], *, chat: bool) -> None:
        self._server, self._connection, self._chat = server, connection, chat
        self._tokens = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16)
        self._usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        self._prompt_tokens = _tokens_of(asked)
        user = str(asked.get("user") or "")
        self._fault = user.removeprefix("fault:") if user.startswith("fault:") else None
        self._written = 0
        self._instants: Iterator[float] = iter(())
        self.gone = False

    def begin(self) -> None:
        """Take the request in."""
        self._server.note(self._tokens)
        now_s = self._server.now_s()
        if self._fault in ("status_429", "status_500", "malformed_http", "content_type"):
            self._connection.write(_WHOLE[self._fault])
            self._connection.end(self)
            return
        thawed_s = self._server.behaviour.thawed_s(now_s)
        if thawed_s > now_s:
            self._server.at(thawed_s, lambda: self._server.enter(self))
        else:
            self._server.enter(self)

    def serve(self, served_s: float) -> None:
        """Begin to write, from an instant on."""
        behaviour = self._server.behaviour
        self._connection.write(HEAD)
        self._instants = behaviour.tokens(served_s, self._tokens, self._server.rng())
        if self._fault == "endless":
            self._tokens = sys.maxsize
            self._instants = behaviour.tokens(served_s, self._tokens, self._server.rng())
        if behaviour.role_first:
            half_s = behaviour.thawed_s(served_s + behaviour.first.mean_s / 2.0)
            self._server.at(half_s, self._tell_role)
        self._next()

    def _event(self, data: dict[str, Any]) -> bytes:
        return _event(data, chat=self._chat)

    def _tell_role(self) -> None:
        role: dict[str, Any] = {"delta": {"role": "assistant", "content": ""}} if self._chat else {"text": ""}
        self._connection.write(
            framed(self._event({"choices": [{"index": 0, "finish_reason": None, **role}]}))
        )

    def _next(self) -> None:
        count = min(self._server.behaviour.tokens_per_chunk, self._tokens - self._written)
        for _ in range(count):
            instant_s = next(self._instants)
        # At absolute instants: a late alarm does not delay the ones behind it.
        self._server.at(instant_s, lambda: self._write(count, instant_s))

    def _write(self, count: int, at_s: float) -> None:
        # Lost clients are looked for between tokens, so a place comes free at the next due one.
        if self.gone:
            self._server.leave(self, at_s)
            return
        if self._fault is not None and self._written >= self._tokens // 2 and self._go_wrong(at_s):
            return
        event = self._server.event(self._written % VOCABULARY, count, chat=self._chat)
        self._written += count
        if self._written < self._tokens:
            self._connection.write(event)
            self._next()
            return
        self._connection.write(event + self._ending())
        self._leave(at_s)

    def _leave(self, at_s: float) -> None:
        self._connection.end(self)
        self._server.leave(self, at_s)

    def _ending(self, finish: str = "length") -> bytes:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if self._chat:
            choice["delta"] = {}
        else:
            choice["text"] = ""
        ending = framed(self._event({"choices": [choice]}))
        if self._usage and self._server.behaviour.usage:
            usage = {"prompt_tokens": self._prompt_tokens, "completion_tokens": self._written}
            ending += framed(self._event({"choices": [], "usage": usage}))
        if self._fault == "no_end":
            return END
        return ending + framed(DONE) + END

    def _go_wrong(self, at_s: float) -> bool:
        """Do what a fault asks for in the middle; return whether the answer is over."""
        connection, fault, self._fault = self._connection, self._fault, None
        match fault:
            case "malformed_event":
                connection.write(framed(b'data: {"choices": [\n\n'))
            case "schema":
                connection.write(framed(self._event({"output": [{"content": "hello"}]})))
            case "error_event":
                connection.write(
                    framed(self._event({"error": {"message": "out of memory"}})) + framed(DONE) + END
                )
                self._leave(at_s)
                return True
            case "huge_token":
                connection.write(framed(self._event({"choices": [{"index": 0, "text": "x" * 10_000_000}]})))
            case "truncated":
                connection.write(self._ending("stop"))
                self._leave(at_s)
                return True
            case "disconnect":
                connection.close()
                self._server.leave(self, at_s)
                return True
            case "stall":
                return True
            case "killed":
                os._exit(9)
            case "no_end" | "endless":
                self._fault = fault
        return False


_WHOLE = {
    "status_429": b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Type: application/json\r\n"
    b'Content-Length: 32\r\n\r\n{"error": {"message": "patience"',
    "status_500": b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\noops",
    "malformed_http": b"GARBAGE that is no HTTP\r\n\r\n",
    "content_type": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"
    b'{"choices": []}',
}


_LIST = b'{"object": "list", "data": [{"id": "mock", "object": "model"}]}'
_MODELS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_LIST) + _LIST
)
_WELL = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n"


class Connection(asyncio.Protocol):
    """A client's connection."""

    def __init__(self, server: Server) -> None:
        import httptools  # noqa: PLC0415 - an optional dependency

        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._body, self._path = b"", b""
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read a request."""
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Stop writing."""
        if self._answer is not None:
            self._answer.gone = True

    def on_url(self, url: bytes) -> None:
        """Keep the path."""
        self._path, self._body = url, b""

    def on_body(self, body: bytes) -> None:
        """Keep the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """Answer."""
        if self._parser.get_method() == b"GET":  # what clients ask before they begin
            self.write(_MODELS if self._path.endswith(b"/models") else _WELL)
            return
        chat = self._path.endswith(b"/chat/completions")
        self._answer = Answer(self._server, self, json.loads(self._body or b"{}"), chat=chat)
        self._answer.begin()

    def write(self, data: bytes) -> None:
        """Write to the client, if it is there."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def end(self, answer: Answer) -> None:
        """Forget an answer."""
        if self._answer is answer:
            self._answer = None

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


async def serve(
    behaviour: Behaviour, port: int, tls: tuple[str, str] | None, journal: Path | None = None
) -> None:
    """Serve until standard input ends, which it does with the parent."""
    loop = asyncio.get_running_loop()
    written = (
        None if journal is None else journal.open("wb", buffering=0)
    )  # it is killed, and flushes nothing
    server = Server(behaviour, loop, written)
    context = None
    if tls is not None:
        import ssl  # noqa: PLC0415 - few need it

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
    listening = await loop.create_server(
        lambda: Connection(server), "127.0.0.1", port, backlog=4096, ssl=context
    )
    print(json.dumps({"port": listening.sockets[0].getsockname()[1]}), flush=True)
    # No collection, which would be a freeze that the behaviour does not know of.
    gc.freeze()
    gc.disable()
    await loop.run_in_executor(None, sys.stdin.read)


def _tokens_of(asked: Mapping[str, Any]) -> int:
    """Return how many tokens a prompt has: ids, or words of a text or of a chat's messages."""
    prompt = asked.get("prompt")
    if isinstance(prompt, str):
        return len(prompt.split())
    return len(prompt) if prompt else sum(len(str(m["content"]).split()) for m in asked.get("messages") or ())
