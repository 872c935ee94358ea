"""What the load client is held against: a client on a bare event loop that sends the same requests.

Run it as a script; it reads one line of JSON: ``port``, ``requests`` (texts), ``concurrency``. It says ``ready``, waits
for another line, sends the requests over as many connections as are told, each as soon as the one before has ended, and
answers with a line of JSON: seconds and processor seconds from the first request to the last answer, and how
many pieces and tokens came.

It imports nothing of Paceline, so that nothing of Paceline can slow it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator

END = b"\r\n0\r\n\r\n"


class Connection(asyncio.Protocol):
    """Sends a request, notes when its pieces come, and goes on with the next."""

    def __init__(self, requests: Iterator[bytes], done: asyncio.Future[None]) -> None:
        self._requests, self._done = requests, done
        self._seen = b""
        self.pieces: list[tuple[int, bytes]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def send(self) -> None:
        """Send the next request; there is none: say so."""
        request = next(self._requests, None)
        if request is None:
            self._done.set_result(None)
            return
        self._seen = b""
        self._transport.write(request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Keep what came with its instant: events are read after the last answer."""
        self.pieces.append((time.monotonic_ns(), data))
        self._seen = (self._seen + data)[-len(END) :]
        if self._seen == END:
            self.send()


async def serve(port: int, requests: list[bytes], concurrency: int) -> dict[str, float]:
    """Send all requests; return what it took."""
    loop = asyncio.get_running_loop()
    waiting = iter(requests)
    ends = [loop.create_future() for _ in range(concurrency)]
    made = [
        await loop.create_connection(lambda end=end: Connection(waiting, end), "127.0.0.1", port)
        for end in ends
    ]
    connections = [protocol for _, protocol in made]
    gc.collect()
    gc.freeze()
    gc.disable()
    began_s, cpu_s = time.monotonic(), time.process_time()
    for connection in connections:
        connection.send()
    await asyncio.gather(*ends)
    cpu_s, wall_s = time.process_time() - cpu_s, time.monotonic() - began_s
    pieces = [data for c in connections for _, data in c.pieces]
    tokens = sum(data.count(b'"token_ids":[') for data in pieces)
    return {"cpu_s": cpu_s, "wall_s": wall_s, "pieces": len(pieces), "tokens": tokens}


def main() -> None:
    """Read what to do, do it, and tell what it took."""
    job = json.loads(sys.stdin.readline())
    print("ready", flush=True)
    sys.stdin.readline()
    requests = [text.encode() for text in job["requests"]]
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = asyncio.SelectorEventLoop
    with asyncio.Runner(
        loop_factory=factory if job["loop"] == "uvloop" else asyncio.SelectorEventLoop
    ) as runner:
        print(json.dumps(runner.run(serve(job["port"], requests, job["concurrency"]))), flush=True)


if __name__ == "__main__":
    main()
