"""A chat server of known truth on this machine, to try an evaluation on and to test the client against.

It is told the questions with their answers, and answers a set share of them rightly: easy questions always, hard ones
by chance, decided by the question and the request's seed. Tokens are words. It keeps count of every request by the
name that the client gave it.
"""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from paceline.base.errors import UserError
from paceline.base.units import parse_duration
from paceline.families.reasoning.core.problems.files import TextProblem

OPTIONS = ("right", "tokens", "pause", "lacks", "think")
AROUND = 4
"""Tokens that the template puts around a message."""
SPREAD = 0.35
"""Questions differ by so much, up and down, in how often they are answered rightly."""
WORDS = (
    "so",
    "then",
    "we",
    "add",
    "take",
    "the",
    "first",
    "number",
    "and",
    "see",
    "it",
    "gives",
    "what",
    "is",
    "left",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One request that the server has worked on."""

    name: str
    body: Mapping[str, Any]
    status: int
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(kw_only=True)
class Manners:
    """How the server behaves; a test may change it while it runs."""

    right: float = 0.7
    tokens: int = 40
    """Mean of a text's tokens."""
    pause_s: float = 0.0
    lacks: frozenset[str] = frozenset()
    """Fields that end a request with 400: of ``n``, ``logprobs``, ``seed``, ``continue_final_message``, ``chat``."""
    think: str = ""
    """``field`` puts thinking into ``reasoning_content``, ``tags`` into the text."""
    before: Callable[[Mapping[str, Any], int], tuple[int, str, dict[str, str]] | None] = field(
        default=lambda body, count: None
    )
    """Given a request and how many came before: a status, a message and headers in the place of an answer."""


class KnownTruth:
    """The server, on a free port; a context.

    Args:
        text: Its manners as ``right=0.7,tokens=40,pause=20ms,lacks=n+logprobs,think=field``.
        problems: Questions with their answers.
        port: Where it listens; 0 takes a free one.

    Raises:
        UserError: The text sets what there is not.
    """

    def __init__(self, text: str, problems: Sequence[TextProblem], *, port: int = 0) -> None:
        self.manners = manners_of(text)
        self.served: list[Served] = []
        self.received = 0
        """Requests that came in, those that were given up by the client too."""
        self._problems = {one.question: one for one in problems}
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.owner = self

    def __enter__(self) -> Self:
        """Begin to serve."""
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The address below which the paths lie."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def answer(self, path: str, body: Mapping[str, Any], name: str) -> tuple[int, Any, dict[str, str]]:
        """Return a request's status, answer and headers, and count it."""
        manners = self.manners
        with self._lock:
            count = self.received
            self.received += 1
        time.sleep(manners.pause_s)
        refused = manners.before(body, count) or self._lacking(path, body)
        if refused is not None:
            status, message, headers = refused
            self._keep(Served(name=name, body=body, status=status))
            return status, {"error": {"message": message}}, headers
        answer = self._answered(path, body)
        usage = answer["usage"]
        self._keep(
            Served(
                name=name,
                body=body,
                status=200,
                prompt_tokens=usage["prompt_tokens"],
                completion_tokens=usage["completion_tokens"],
            )
        )
        return 200, answer, {}

    def _keep(self, one: Served) -> None:
        with self._lock:
            self.served.append(one)

    def _lacking(self, path: str, body: Mapping[str, Any]) -> tuple[int, str, dict[str, str]] | None:
        asked = {name for name in body if name != "n" or body["n"] > 1}
        if "chat" in self.manners.lacks and path.endswith("/chat/completions"):
            return 400, "the model has no chat template", {}
        lacking = sorted(asked & self.manners.lacks)
        return (400, f"unknown field {lacking[0]}", {}) if lacking else None

    def _answered(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        is_chat = path.endswith("/chat/completions")
        messages = body["messages"] if is_chat else [{"role": "user", "content": body["prompt"]}]
        continues = bool(body.get("continue_final_message"))
        said = " ".join(m["content"] for m in messages)
        prompt = len(said.split()) + AROUND * (len(messages) + 1) - (2 * AROUND if continues else 0)
        with self._lock:
            cached = prompt - 1 if said in self._seen else 0
            self._seen.add(said)
        texts = [self._text(messages, body, place, continues) for place in range(int(body.get("n", 1)))]
        most = int(body.get("max_tokens") or body.get("max_completion_tokens") or 10_000)
        choices, total = [], 0
        for place, (thinking, text) in enumerate(texts):
            words = [*_tokens(thinking), *_tokens(text)][:most]
            total += len(words)
            num_thinking = len(_tokens(thinking))
            finish = "length" if len(words) < len(_tokens(thinking)) + len(_tokens(text)) else "stop"
            choices.append(
                self._choice(place, words[:num_thinking], words[num_thinking:], finish, body, is_chat)
            )
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": total,
            "total_tokens": prompt + total,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": choices,
        } | {"usage": usage}

    def _choice(
        self,
        place: int,
        thinking: Sequence[str],
        words: Sequence[str],
        finish: str,
        body: Mapping[str, Any],
        is_chat: bool,
    ) -> dict[str, Any]:
        text, thought = "".join(words), "".join(thinking)
        if thought and self.manners.think == "tags":
            text, thought = f"<think>{thought}</think>{text}" if words else f"<think>{thought}", ""
        choice: dict[str, Any] = {"index": place, "finish_reason": finish}
        if is_chat:
            choice["message"] = {"role": "assistant", "content": text}
            if thought:
                choice["message"]["reasoning_content"] = thought
        else:
            choice["text"] = text
        if body.get("logprobs"):
            tops = [{"token": "other", "logprob": math.log(0.25)}]
            one = [
                {
                    "token": w,
                    "logprob": math.log(0.5),
                    "top_logprobs": [{"token": w, "logprob": math.log(0.5)}, *tops],
                }
                for w in (*thinking, *words)
            ]
            choice["logprobs"] = {"content": one} if is_chat else _plain_logprobs(one)
        return choice

    def _text(
        self, messages: Sequence[Mapping[str, str]], body: Mapping[str, Any], place: int, continues: bool
    ) -> tuple[str, str]:
        """Return thinking and text."""
        asked = next(m["content"] for m in reversed(messages) if m["role"] == "user")
        problem = next((p for q, p in self._problems.items() if q in asked), None)
        if problem is None:
            return "", "Hello, how can I help?"
        seed = 0 if body.get("temperature") == 0 else (body.get("seed", random.random()), place)
        rng = random.Random(f"{problem.key}/{seed}")
        hard = random.Random(f"{problem.key}").uniform(-SPREAD, SPREAD)
        told = problem.answer if rng.random() < self.manners.right + hard else _wrong(problem, rng)
        if continues:
            return "", f"{told}}}"
        count = max(int(rng.gauss(self.manners.tokens, self.manners.tokens / 4)), 4)
        working = " ".join(rng.choice(WORDS) for _ in range(count))
        return (
            (working, f" The answer is \\boxed{{{told}}}.")
            if self.manners.think
            else (
                "",
                f"{working}. The answer is \\boxed{{{told}}}.",
            )
        )


def manners_of(text: str) -> Manners:
    """Return what a text sets.

    Raises:
        UserError: It sets what there is not.
    """
    found = Manners()
    try:
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            if name in ("lacks", "think"):
                setattr(found, name, frozenset(value.split("+")) if name == "lacks" else value)
            elif name == "pause":
                found.pause_s = parse_duration(value)
            elif name in OPTIONS:
                setattr(found, name, type(getattr(found, name))(value))
            else:
                raise ValueError(f"no '{name}'")
    except ValueError as error:
        raise UserError(
            f"the mock cannot be set so: {error}",
            where=f"--model=mock:{text}",
            expected="right=0.7,tokens=40,pause=20ms,lacks=n+logprobs,think=field",
            fix="--model=mock:right=0.7",
        ) from error
    return found


def _wrong(problem: TextProblem, rng: random.Random) -> str:
    if problem.kind == "choice":
        return rng.choice([letter for letter in problem.choices if letter != problem.answer])
    try:
        return str(int(problem.answer) + rng.choice((-2, -1, 1, 2, 10)))
    except ValueError:
        return str(rng.randint(1000, 1009))


def _tokens(text: str) -> list[str]:
    """Return words with the space before each: together they are the text."""
    words = text.split(" ")
    found = [words[0], *(f" {word}" for word in words[1:])]
    return [word for word in found if word]


def _plain_logprobs(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "tokens": [row["token"] for row in rows],
        "token_logprobs": [row["logprob"] for row in rows],
        "top_logprobs": [{top["token"]: top["logprob"] for top in row["top_logprobs"]} for row in rows],
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    owner: KnownTruth

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Answer one request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self.headers.get("X-Client-Request-Id", "")
        status, answer, headers = self.server.owner.answer(self.path, body, name)
        # A test may put bytes there that are no JSON.
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for key, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **headers,
        }.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)
