"""The trivial server of the load client's check: it answers every request at once, and with the same bytes.

Run it as a script with a number of tokens: it prints its port, and serves until its standard input is closed. The
answer is a stream of completion events, each in a chunk of its own, sent in one write: how many pieces a client
receives, and so its processor time, then hardly depends on how busy the machine is.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(data: dict[str, Any]) -> bytes:
    """Return an event of the stream in a chunk of its own."""
    told = {"id": "canned", "object": "text_completion", "created": 0, "model": "canned", **data}
    return chunk(b"data: " + json.dumps(told, separators=(",", ":")).encode() + b"\n\n")


def chunk(body: bytes) -> bytes:
    """Return a chunk of chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def answer(tokens: int) -> bytes:
    """Return the whole answer."""
    events = [
        event({"choices": [{"index": 0, "finish_reason": None, "text": f" t{n}", "token_ids": [n]}]})
        for n in range(tokens)
    ]
    end = event({"choices": [{"index": 0, "finish_reason": "length", "text": ""}]})
    usage = event(
        {
            "choices": [],
            "usage": {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens},
        }
    )
    return HEAD + b"".join(events) + end + usage + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Connection(asyncio.Protocol):
    """Answers whatever it reads; clients send a request only after the answer to the one before."""

    def __init__(self, reply: bytes) -> None:
        self._reply, self._seen, self._needed = reply, b"", 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer when the request is there as a whole."""
        self._seen += data
        head, blank, body = self._seen.partition(b"\r\n\r\n")
        if blank and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            self._seen = b""
            self._transport.write(self._reply)  # type: ignore[attr-defined]


async def serve(tokens: int) -> None:
    """Serve until standard input is closed."""
    loop = asyncio.get_running_loop()
    reply = answer(tokens)
    server = await loop.create_server(lambda: Connection(reply), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
