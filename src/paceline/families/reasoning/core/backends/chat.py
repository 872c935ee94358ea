"""One request to an endpoint's chat, and what came back: texts, thinking apart, tokens, what the server counted.

Nothing is retried here: who asks decides that, since each attempt may be paid. The key is read from ``OPENAI_API_KEY``
and no error holds it.
"""

from __future__ import annotations

import importlib
import itertools
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from paceline.base.errors import PrerequisiteError
from paceline.families.reasoning.core.answers.words import THINKS, THOUGHT
from paceline.families.reasoning.core.backends.endpoint import KEY
from paceline.families.reasoning.core.backends.endpoint_errors import bare_url, said
from paceline.families.reasoning.core.backends.token_texts import entropy

PATHS = {"chat": "/chat/completions", "completions": "/completions"}
THINKING = ("reasoning_content", "reasoning")
"""Fields of a message in which servers put thinking: vLLM, SGLang and DeepSeek; OpenRouter and newer vLLM."""
NEVER_LEFT = ("ConnectError", "ConnectTimeout", "PoolTimeout")
"""Errors of the HTTP library before a request is sent."""
AGAIN = (408, 409, 429)
"""Statuses below 500 after which the same request may succeed."""
GRACE_S = 0.5
"""Beyond the time limit, so that the library's own error comes first, which knows whether the request had left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One text of an answer."""

    text: str
    """What the model answers, without its thinking where that could be told apart."""
    thinking: str
    finish: str
    """``stop``, ``length`` or what else the server says."""
    tokens: int
    """Completion tokens, thinking included; of several texts without logprobs a share by length."""
    pieces: tuple[str, ...] = ()
    """Texts of the tokens, where the server gives logprobs."""
    logprobs: tuple[float, ...] = ()
    entropies: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """What a request gave."""

    choices: tuple[Choice, ...]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None
    """Prompt tokens that the server says it had read before; None where it does not say."""
    seconds: float


class ChatError(Exception):
    """A request that gave no answer.

    Args:
        what: In one line, without the key.
        status: The server's; None where none came.
        again: Whether the same request may succeed later.
        unknown: Whether the server may have worked on it, and nobody here knows what that cost.
        pause_s: What the server asks to wait before; None where it does not say.
    """

    def __init__(
        self,
        what: str,
        *,
        status: int | None,
        again: bool,
        unknown: bool = False,
        pause_s: float | None = None,
    ) -> None:
        super().__init__(what)
        self.what, self.status, self.again, self.pause_s = what, status, again, pause_s
        self.unknown = unknown


class ChatClient:
    """Sends requests to one address.

    Args:
        url: The address below which ``/chat/completions`` lies.
        interface: ``chat`` or ``completions``.
        timeout_s: Of a whole request. Servers and proxies send blanks to keep a connection alive, so that the time
            until the next byte, which is what the library bounds, has no end.
        tags: What thinking begins and ends with in a text, beside the usual marks.

    Raises:
        PrerequisiteError: The package openai is not installed.
        UserError: The address is none.
    """

    def __init__(
        self,
        url: str,
        *,
        interface: str = "chat",
        timeout_s: float = 600.0,
        tags: tuple[str, str] | None = None,
    ) -> None:
        self.url = bare_url(url)
        try:
            self._library: Any = importlib.import_module("openai")
        except ImportError as error:
            raise PrerequisiteError(
                "endpoints need the package openai", where=self.url, fix="pip install 'paceline[openai]'"
            ) from error
        self._key, self._path, self._tags = os.environ.get(KEY, ""), PATHS[interface], tags
        self._client: Any = self._library.OpenAI(
            api_key=self._key or "none", base_url=url, max_retries=0, timeout=timeout_s
        )
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def send(self, body: Mapping[str, Any], name: str) -> ChatAnswer:
        """Send one request and wait for its answer; thread-safe.

        Args:
            body: Its fields.
            name: Sent as ``X-Client-Request-Id``, so that a server's log can be held against what is kept here.

        Raises:
            ChatError: There is no answer, or none that the interface knows.
        """
        begun = time.perf_counter()
        try:
            found = self._in_time(
                lambda: self._client.post(
                    self._path,
                    cast_to=object,
                    body=dict(body),
                    options={"headers": {"X-Client-Request-Id": name}},
                )
            )
        except queue.Empty:
            failure = _late()
        except self._library.APIStatusError as error:
            failure = self._refused(error)
        except self._library.APIConnectionError as error:  # of which a time that is up is one
            failure = self._broken(error)
        except (self._library.APIError, ValueError) as error:
            failure = ChatError(
                f"no JSON: {said(str(error), self._key)}", status=None, again=False, unknown=True
            )
        else:
            try:
                return read_answer(found, time.perf_counter() - begun, self._tags)
            except (AttributeError, KeyError, TypeError, IndexError, ValueError) as error:
                failure = ChatError(
                    f"the server answers otherwise: {said(str(error), self._key)}",
                    status=200,
                    again=False,
                    unknown=True,
                )
        raise failure  # here, without the library's errors, which hold the request with its key

    def _in_time(self, post: Callable[[], Any]) -> Any:
        """Return what a request gives, and leave it to itself after its time: closing the client ends it.

        Raises:
            queue.Empty: The time is up.
        """
        ended: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                ended.put((post(), None))
            except BaseException as error:  # it is the caller's
                ended.put((None, error))

        threading.Thread(target=work, name="request under way", daemon=True).start()
        found, error = ended.get(timeout=self._timeout_s + GRACE_S)
        if error is not None:
            raise error
        return found

    def _broken(self, error: Any) -> ChatError:
        """Return the error of a request without an answer: one that never left may be sent again."""
        cause = error.__cause__ or error
        left = type(cause).__name__ not in NEVER_LEFT
        if isinstance(error, self._library.APITimeoutError) and left:
            return _late()
        what = "the connection broke" if left else "no connection"
        return ChatError(
            f"{what}: {said(str(cause), self._key)} ({type(cause).__name__})",
            status=None,
            again=True,
            unknown=left,
        )

    def _refused(self, error: Any) -> ChatError:
        status = int(error.status_code)
        told = error.body.get("message") if isinstance(error.body, dict) else None
        message = said(str(told or error.message), self._key)
        return ChatError(
            f"status {status}: {message}",
            status=status,
            again=status in AGAIN or status >= 500,
            pause_s=pause_of(error.response.headers, time.time()),
        )


def _late() -> ChatError:
    """Return the error of a time that is up: the server may be at work still, and a second request would cost again."""
    return ChatError("no answer within the time limit", status=None, again=False, unknown=True)


def pause_of(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return the seconds that a server asks to wait: ``Retry-After`` as seconds or a date, or ``retry-after-ms``."""
    milliseconds, given = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(float(milliseconds) / 1000, 0.0)
        if given is None:
            return None
        value = (
            float(given) if given.strip()[:1].isdigit() else parsedate_to_datetime(given).timestamp() - now_s
        )
    except ValueError:
        return None
    return max(value, 0.0) if math.isfinite(value) else None


def read_answer(found: Any, seconds: float, tags: tuple[str, str] | None = None) -> ChatAnswer:
    """Return what a parsed answer holds.

    Raises:
        AttributeError, KeyError, TypeError, IndexError, ValueError: It is not what the interface says.
    """
    usage = found.get("usage")
    if not isinstance(usage, dict):
        raise ValueError("it counts no tokens: the answer has no 'usage'")
    prompt, completion = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))
    read = [_choice(one, tags) for one in sorted(found["choices"], key=lambda c: int(c.get("index") or 0))]
    if not read:
        raise ValueError("it has no choices")
    return ChatAnswer(
        choices=shared_out(read, completion),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=None if cached is None else int(cached),
        seconds=seconds,
    )


def shared_out(choices: Sequence[Choice], total: int) -> tuple[Choice, ...]:
    """Return texts with their tokens: by logprobs where there are some, else by length; the sum is exact."""
    known = [len(one.logprobs) for one in choices]
    sizes = known if all(known) else [len(one.thinking) + len(one.text) + 1 for one in choices]
    bounds = [round(total * sum(sizes[:place]) / sum(sizes)) for place in range(len(sizes) + 1)]
    if all(known) and sum(known) <= total <= sum(known) + len(known):
        # A server may count each text's end, which it names no token.
        ends = [1 if place < total - sum(known) else 0 for place in range(len(known))]
        counts = [size + end for size, end in zip(known, ends, strict=True)]
    else:
        counts = [high - low for low, high in itertools.pairwise(bounds)]
    return tuple(
        Choice(
            text=one.text,
            thinking=one.thinking,
            finish=one.finish,
            tokens=count,
            pieces=one.pieces,
            logprobs=one.logprobs,
            entropies=one.entropies,
        )
        for one, count in zip(choices, counts, strict=True)
    )


def split_thinking(text: str, tags: tuple[str, str] | None = None) -> tuple[str, str]:
    """Return a text's thinking and what follows it; all of it is thinking where that was cut off."""
    if tags is not None:
        before, closing, after = text.rpartition(tags[1])
        if closing:
            return before.replace(tags[0], "", 1).strip(), after.lstrip()
        if tags[0] in text:
            return text.replace(tags[0], "", 1).strip(), ""
    closings = list(THOUGHT.finditer(text))
    if closings:
        end = closings[-1]
        return THINKS.sub("", text[: end.start()], count=1).strip(), text[end.end() :].lstrip()
    opening = THINKS.search(text)
    return (
        (text[opening.end() :].strip(), "") if opening and not text[: opening.start()].strip() else ("", text)
    )


def _choice(one: Mapping[str, Any], tags: tuple[str, str] | None) -> Choice:
    message = one.get("message") or {}
    text, parts = _texts(message.get("content") if "message" in one else one["text"])
    thinking = next((message[name] for name in THINKING if isinstance(message.get(name), str)), parts)
    inline, answer = split_thinking(text, tags)
    pieces, logprobs, entropies = _measured(one.get("logprobs"))
    return Choice(
        text=answer,
        thinking="\n".join(filter(None, (thinking.strip(), inline))),
        finish=str(one.get("finish_reason") or "stop"),
        tokens=0,
        pieces=pieces,
        logprobs=logprobs,
        entropies=entropies,
    )


def _texts(content: Any) -> tuple[str, str]:
    """Return the text and the thinking of a message's content: a text, or parts as Mistral's models have them."""
    if content is None or isinstance(content, str):
        return content or "", ""
    if not isinstance(content, list):
        raise ValueError(f"a text is {type(content).__name__}")
    text, thinking = "", ""
    for part in content:
        text += _texts(part.get("text"))[0]
        thinking += _texts(part.get("thinking"))[0]
    return text, thinking


def _measured(given: Any) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]:
    """Return texts, logarithms of probabilities and least entropies of the tokens; nothing where none are given."""
    if not given:
        return (), (), ()
    if "tokens" in given:  # of /completions
        rows = [
            (text, value, top or {})
            for text, value, top in zip(
                given["tokens"],
                given["token_logprobs"],
                given.get("top_logprobs") or [None] * len(given["tokens"]),
                strict=True,
            )
        ]
    else:
        rows = [
            (
                one["token"],
                one["logprob"],
                {top["token"]: top["logprob"] for top in one.get("top_logprobs") or ()},
            )
            for one in given.get("content") or ()
        ]
    # Rounding may put a logarithm a little above 0.
    values = [(str(text), min(float(value), 0.0), top) for text, value, top in rows]
    return (
        tuple(text for text, _, _ in values),
        tuple(value for _, value, _ in values),
        tuple(entropy({t: min(float(v), 0.0) for t, v in top.items()}, value) for _, value, top in values),
    )
