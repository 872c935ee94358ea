"""A small server of completions on this machine, which does what a test tells it, and counts what it generated."""

from __future__ import annotations

import json
import math
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE_S = 60.0
"""How long it waits for a client to do what a test is about."""
WORDS = (" one", " two", " three", " plus", " is", " so", " then", " we", " have", "\n")


def words_of(request: dict[str, Any]) -> list[str]:
    """Return what the server writes for a request: decided by prompt and seed, from 3 to 40 tokens."""
    rng = random.Random(f"{request['prompt']}|{request.get('seed')}")
    return [rng.choice(WORDS) for _ in range(rng.randint(3, 40))]


@dataclass
class Request:
    """One request, and what came of it."""

    body: dict[str, Any]
    key: str
    generated: int = 0
    """Tokens that were generated before the client left."""
    left: bool = False
    """Whether the client left before the end."""
    ended: threading.Event = field(default_factory=threading.Event)


class Server(ThreadingHTTPServer):
    """Answers ``/v1/completions``; each request takes the next of the behaviours, or a plain answer."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behaviours: deque[str] = deque()
        self.requests: list[Request] = []
        self.words: Callable[[dict[str, Any]], list[str]] = words_of
        self.rests_at: int | None = None
        """The token before which every stream waits until its client has left."""
        self.resting = threading.Event()
        """Set when a request has begun to wait for that."""
        self.with_logprobs = True
        self.names_end = True
        """Whether the end of a text is a token of the last message."""
        self.most_at_once = 0
        self._at_once = self._wanted_at_once = 0
        self._all_here = threading.Event()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def gather(self, number: int) -> None:
        """Answer nobody before so many requests are under way at once."""
        self._wanted_at_once = number

    def add(self, request: Request) -> str:
        with self._lock:
            self.requests.append(request)
            return self.behaviours.popleft() if self.behaviours else "ok"

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            if self.most_at_once >= self._wanted_at_once:
                self._all_here.set()
        self._all_here.wait(PATIENCE_S)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are no news."""


@contextmanager
def running() -> Iterator[Server]:
    """Serve until the context ends."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    wbufsize = 0
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = Request(body=body, key=self.headers.get("Authorization", "").removeprefix("Bearer "))
        behaviour = self.server.add(request)
        try:
            with self.server.counted():
                self._answer(request, behaviour)
        except OSError:
            request.left = True
        finally:
            request.ended.set()

    def _answer(self, request: Request, behaviour: str) -> None:
        kind, _, value = behaviour.partition(":")
        if kind == "status":
            status, _, retry_after = value.partition(",")
            headers = {"Retry-After": retry_after} if retry_after else {}
            said = f"no, not with {request.key}"
            self._send(int(status), json.dumps({"error": {"message": said}}), "application/json", headers)
        elif kind == "silent":
            self._rest()
        elif kind == "html":
            self._send(200, "<html>welcome</html>", "text/html", {})
        elif not request.body.get("stream"):
            self._send(
                200,
                value if kind == "raw" else json.dumps(self._echoed(request.body)),
                "application/json",
                {},
            )
        else:
            self._begin(200, "text/event-stream", {})
            if kind == "raw":
                self.wfile.write(f"data: {value}\n\n".encode())
            else:
                self._stream(
                    request,
                    cut=int(value) if kind == "cut" else None,
                    wrong=int(value or 0) if kind == "miscount" else 0,
                    rests_at=0 if kind == "rests" else self.server.rests_at,
                )

    def _rest(self) -> None:
        """Wait until the client has left: an event, so that no test depends on how fast it does."""
        self.server.resting.set()
        self.connection.settimeout(PATIENCE_S)
        try:
            said = self.connection.recv(1)
        except TimeoutError:
            raise RuntimeError("the client stays") from None
        if not said:
            raise ConnectionError("the client has left")

    def _stream(self, request: Request, cut: int | None, wrong: int, rests_at: int | None) -> None:
        body = request.body
        words = self.server.words(body)
        chosen = words[: body["max_tokens"]]
        for place, word in enumerate(chosen):
            if place == cut:
                return
            if place == rests_at:
                self._rest()
            request.generated += 1
            self._message(body, word, [word], None)
        ends = len(words) < body["max_tokens"]
        named = ["</s>"] if ends and self.server.names_end else []
        request.generated += len(named)
        self._message(body, "", named, "stop" if ends else "length")
        if body.get("stream_options", {}).get("include_usage"):
            usage = {"completion_tokens": request.generated + wrong, "prompt_tokens": 1, "total_tokens": 1}
            self._event({**_frame(body), "choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _message(self, body: dict[str, Any], text: str, tokens: list[str], finish: str | None) -> None:
        logprobs = None
        if self.server.with_logprobs and body.get("logprobs"):
            logprobs = {
                "tokens": tokens,
                "token_logprobs": [math.log(0.5)] * len(tokens),
                "top_logprobs": [{token: math.log(0.5), " other": math.log(0.25)} for token in tokens],
                "text_offset": [0] * len(tokens),
            }
        choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": logprobs}
        self._event({**_frame(body), "choices": [choice]})

    def _event(self, message: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())

    def _echoed(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return an answer that has the prompt's own logprobs: tokens are letters, a's likelier than others."""
        tokens = [*body["prompt"], " more"]
        values = [None, *(-0.5 if letter == "a" else -1.0 for letter in tokens[1:])]
        logprobs = {"tokens": tokens, "token_logprobs": values, "top_logprobs": None, "text_offset": None}
        choice = {"index": 0, "text": "".join(tokens), "finish_reason": "length", "logprobs": logprobs}
        return {**_frame(body), "choices": [choice]}

    def _begin(self, status: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, status: int, text: str, kind: str, headers: dict[str, str]) -> None:
        self._begin(status, kind, {"Content-Length": str(len(text.encode())), **headers})
        self.wfile.write(text.encode())


def _frame(body: dict[str, Any]) -> dict[str, Any]:
    return {"id": "c", "object": "text_completion", "created": 0, "model": body["model"]}
