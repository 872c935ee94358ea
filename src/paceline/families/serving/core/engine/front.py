"""The engine's HTTP front: the OpenAI interface's completions and chat, streamed, as an ASGI application.

There is no tokenizer: token ids are taken and given as they are, and as text they are words ``t17``. A text that is not
made of such words is read as its UTF-8 bytes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paceline.base.counting import number_of
from paceline.families.serving.core.engine.core import Output
from paceline.families.serving.core.engine.thread import Asked, EngineThread
from paceline.families.serving.core.model_sizes import FIRST_TOKEN

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
HOLD = "/paceline/hold/"
"""Behind it stands a number of requests."""
MAX_BODY_BYTES = 16 * 2**20


class BadRequestError(Exception):
    """A request that is not what the interface says; its text goes to the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A request, read."""

    prompt: list[int]
    tokens: int
    tenant: str
    stream: bool
    usage: bool
    chat: bool
    model: str


def read_tokens(text: str, vocabulary: int) -> list[int]:
    """Return the tokens of a text."""
    words = text.split()
    if words and all(w[0] == "t" and w[1:].isdigit() and int(w[1:]) < vocabulary for w in words):
        return [int(w[1:]) for w in words]
    return [FIRST_TOKEN + byte % (vocabulary - FIRST_TOKEN) for byte in text.encode()]


def read_request(body: bytes, *, chat: bool, vocabulary: int, context: int) -> Wanted:
    """Read a request's body.

    Raises:
        BadRequestError: It asks for what there is not.
    """
    try:
        asked = json.loads(body)
        if chat:
            prompt = read_tokens(" ".join(str(m["content"]) for m in asked["messages"]), vocabulary)
        elif isinstance(asked["prompt"], str):
            prompt = read_tokens(asked["prompt"], vocabulary)
        else:
            prompt = [int(token) for token in asked["prompt"]]
        # 16 is the interface's own default for completions.
        tokens = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16)
        options = asked.get("stream_options") or {}
        wanted = Wanted(
            prompt=prompt,
            tokens=tokens,
            tenant=str(asked.get("user") or ""),
            stream=bool(asked.get("stream")),
            usage=bool(options.get("include_usage")),
            chat=chat,
            model=str(asked.get("model") or ""),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadRequestError(f"{type(error).__name__}: {error}") from error
    if not prompt or min(prompt) < 0 or max(prompt) >= vocabulary or tokens < 1:
        raise BadRequestError(f"a prompt has tokens of 0 to {vocabulary - 1}, and max_tokens is 1 or more")
    if len(prompt) + tokens > context:
        raise BadRequestError(f"{number_of(len(prompt) + tokens, 'token')}; the model knows {context}")
    return wanted


class Front:
    """The application.

    Args:
        engine: What serves.
        vocabulary: Tokens of the model.
        context: Most tokens of a request with its answer.
    """

    def __init__(self, engine: EngineThread, *, vocabulary: int, context: int) -> None:
        self._engine, self._vocabulary, self._context = engine, vocabulary, context
        self._num = 0

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        if path in ("/v1/completions", "/v1/chat/completions"):
            await self._complete(path.endswith("chat/completions"), receive, send)
        elif path == "/paceline/counters":
            await _whole(send, 200, self._engine.counters())
        elif path.startswith(HOLD) and path.removeprefix(HOLD).isdecimal():
            self._engine.hold(int(path.removeprefix(HOLD)))
            await _whole(send, 200, {})
        elif path == "/health":
            failure = self._engine.failure
            await _whole(send, 503 if failure else 200, {"status": failure or "ok"})
        elif path == "/paceline/failure":
            await _whole(send, 200, {"kind": self._engine.failure_kind, "reason": self._engine.failure})
        elif path == "/metrics":
            await self._metrics(send)
        elif path == "/v1/models":
            await _whole(send, 200, {"object": "list", "data": [{"id": "paceline", "object": "model"}]})
        else:
            await _whole(send, 404, {"error": {"message": f"there is nothing at {path}"}})

    async def _metrics(self, send: Send) -> None:
        lines = [f"paceline_{name} {value:g}\n" for name, value in self._engine.counters().items()]
        await _start(send, 200, [(b"content-type", b"text/plain; version=0.0.4")])
        await send({"type": "http.response.body", "body": "".join(lines).encode()})

    async def _complete(self, chat: bool, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > MAX_BODY_BYTES:
                await _whole(send, 413, {"error": {"message": f"more than {MAX_BODY_BYTES} bytes"}})
                return
            if not message.get("more_body"):
                break
        try:
            wanted = read_request(body, chat=chat, vocabulary=self._vocabulary, context=self._context)
        except BadRequestError as error:
            await _whole(send, 400, {"error": {"message": str(error), "type": "invalid_request_error"}})
            return
        self._num += 1
        answer = _Answer(self._engine, wanted, f"cmpl-{self._num}")
        await (answer.stream(receive, send) if wanted.stream else answer.at_once(receive, send))


class _Answer:
    """One request's way through the engine."""

    def __init__(self, engine: EngineThread, wanted: Wanted, name: str) -> None:
        self._engine, self._wanted, self._name = engine, wanted, name
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[list[Output] | str] = asyncio.Queue()
        self._number: int | None = None
        self._gone = False

    def _ask(self) -> None:
        def put(heard: list[Output] | str) -> None:
            # Called from the engine's thread; asyncio's queues are not safe to use from there.
            self._loop.call_soon_threadsafe(self._queue.put_nowait, heard)

        def admitted(number: int) -> None:
            # Each side writes before it reads (number, then gone; gone, then number), so one of the two always
            # cancels.
            self._number = number
            if self._gone:
                self._engine.cancel(number)

        self._engine.ask(
            Asked(
                prompt=self._wanted.prompt,
                wanted=self._wanted.tokens,
                tenant=self._wanted.tenant,
                hear=put,
                admitted=admitted,
                refused=put,
            )
        )

    async def stream(self, receive: Receive, send: Send) -> None:
        """Stream the answer; stop the engine when the client goes."""
        self._ask()
        gone = asyncio.ensure_future(self._wait_until_gone(receive))
        begun = False
        try:
            told = 0
            # By count alone: the engine has no end of sequence, every answer is as long as was asked.
            while told < self._wanted.tokens:
                outputs = await self._queue.get()
                # The status goes out with the first token: until then a failure can still be a 500.
                if not begun and not isinstance(outputs, str):
                    await _start(send, 200, STREAM_HEADERS)
                    begun = True
                if isinstance(outputs, str) or not outputs:
                    await self._fail(send, outputs if isinstance(outputs, str) else None, begun=begun)
                    return
                for output in outputs:
                    told += 1
                    await _chunk(send, self._event(output))
            await _chunk(send, self._ending(told) + b"data: [DONE]\n\n", more=False)
        finally:
            gone.cancel()

    async def at_once(self, receive: Receive, send: Send) -> None:
        """Answer with all tokens at once."""
        self._ask()
        gone = asyncio.ensure_future(self._wait_until_gone(receive))
        ids: list[int] = []
        try:
            while len(ids) < self._wanted.tokens:
                outputs = await self._queue.get()
                if isinstance(outputs, str) or not outputs:
                    await self._fail(send, outputs if isinstance(outputs, str) else None, begun=False)
                    return
                ids += [o.token for o in outputs]
        finally:
            gone.cancel()
        choice = {**self._choice(ids, whole=True), "finish_reason": "length"}
        await _whole(send, 200, {**self._head(), "choices": [choice], "usage": self._usage(len(ids))})

    async def _wait_until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self._number is not None:
            self._engine.cancel(self._number)
        self._queue.put_nowait("the client has gone")

    async def _fail(self, send: Send, reason: str | None, *, begun: bool) -> None:
        if self._gone:
            return
        error = {"error": {"message": reason or self._engine.failure or "", "type": "server_error"}}
        if begun:
            await _chunk(send, _event(error) + b"data: [DONE]\n\n", more=False)
        else:
            await _whole(send, 500, error)

    def _head(self) -> dict[str, Any]:
        kind = ("chat.completion" if self._wanted.chat else "text_completion") + (
            ".chunk" if self._wanted.chat and self._wanted.stream else ""
        )
        # No clock in answers, so equal requests give equal bytes.
        return {"id": self._name, "object": kind, "created": 0, "model": self._wanted.model}

    def _choice(self, ids: list[int], *, whole: bool = False) -> dict[str, Any]:
        text = "".join(f" t{i}" for i in ids)
        said: dict[str, Any] = {"text": text}
        if self._wanted.chat:
            said = {"message" if whole else "delta": {"role": "assistant", "content": text}}
        return {"index": 0, **said, "token_ids": ids, "finish_reason": None, "logprobs": None}

    def _event(self, output: Output) -> bytes:
        return _event({**self._head(), "choices": [self._choice([output.token])]})

    def _ending(self, tokens: int) -> bytes:
        choice = {**self._choice([]), "finish_reason": "length"}
        ending = _event({**self._head(), "choices": [choice]})
        if self._wanted.usage:
            ending += _event({**self._head(), "choices": [], "usage": self._usage(tokens)})
        return ending

    def _usage(self, tokens: int) -> dict[str, int]:
        prompt = len(self._wanted.prompt)
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


async def _start(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _chunk(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _whole(send: Send, status: int, data: Mapping[str, Any]) -> None:
    body = json.dumps(data).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await _start(send, status, headers)
    await _chunk(send, body, more=False)
