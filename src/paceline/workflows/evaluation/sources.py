"""Where traces come from: an endpoint, or a network of ``transformers`` in this process; both are asked by messages."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

from paceline.base.counting import number_of
from paceline.families.reasoning.core.answers.places import opened_thinking
from paceline.families.reasoning.core.backends.chat import ChatAnswer, ChatClient, ChatError, split_thinking
from paceline.families.reasoning.core.language import Draw
from paceline.workflows.evaluation.journal import GREEDY, NO_PROBLEM, Journal, Kept
from paceline.workflows.evaluation.pace import Pace

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
LETTERS_OF_A_TOKEN = 3.0
"""Fewer than a token of English has, to reserve room in a minute's tokens."""
WHOLE: Mapping[str, float] = {"top_p": 1.0, "top_k": -1, "min_p": 0.0}
"""Fields by which a server draws from the whole distribution, as a network in this process does. Left to themselves
servers cut its tail, each in its own way: llama.cpp by 40, 0.95 and 0.05, vLLM by what generation_config.json says."""
LOGPROBS: Mapping[str, Mapping[str, Any]] = {
    "chat": {"logprobs": True, "top_logprobs": 5},
    "completions": {"logprobs": 5},
}
"""By interface, the fields that ask for log-probabilities."""
RETRIES_OF_A_FIELD = 1
"""Of a request that finds out whether a field is known, after a status of 500, which may be the answer to the field."""
NEXT_QUESTION = "\nQuestion:"


class CallFailedError(Exception):
    """A request that gave nothing for good; its text is the reason that the question's row has.

    Args:
        what: The reason.
        status: The server's; None where none came.
    """

    def __init__(self, what: str, status: int | None = None) -> None:
        super().__init__(what)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How every question is asked."""

    system: str = ""
    temperature: float
    max_tokens: int
    seed: int = 0
    stop: tuple[str, ...] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict)

    def messages(self, question: str) -> list[dict[str, str]]:
        """Return the chat that asks a question."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": question}]

    def seed_of(self, problem: int, index: int) -> int:
        """Return the seed of a trace: 31 bits, which servers take as a signed whole number."""
        digest = hashlib.blake2b(repr((self.seed, problem, index)).encode(), digest_size=4).digest()
        return int.from_bytes(digest) >> 1


class Source(Protocol):
    """What draws whole traces and probes, and keeps them in the journal."""

    def draw(self, problem: int, question: str, indices: Sequence[int]) -> None:
        """Draw traces; each is on the problem's shelf the moment that it has ended.

        Raises:
            CallFailedError: Some failed; the others are on the shelf.
            SpentError: A budget is used up.
        """

    def probe(self, problem: int, question: str, text: str, tokens: int) -> None:
        """Let the model go on behind a text of its own, by its likeliest tokens; raises as ``draw``."""

    @property
    def batches(self) -> bool:
        """Whether one request draws several traces of a question."""


def digest_of(text: str) -> str:
    """Return the name of a probe by the text that it continues."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class EndpointSource:
    """An endpoint: requests are paced, retried where the server did not work on them, and kept the moment they end.

    Args:
        client: Sends one request.
        model: Its name at the server.
        interface: ``chat`` or ``completions``.
        abilities: What the server has: of ``logprobs``, ``n``, ``seed``, ``continuation``, ``max_completion_tokens``
            and those of ``WHOLE``.
        retries: Of a request that was refused for capacity or found no connection.
        extra: Further fields of every request.
    """

    def __init__(
        self,
        client: ChatClient,
        model: str,
        asking: Asking,
        journal: Journal,
        pace: Pace,
        *,
        interface: str,
        abilities: frozenset[str],
        retries: int,
        concurrency: int,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._client, self._model, self._asking = client, model, asking
        self._journal, self._pace = journal, pace
        self.interface, self._retries = interface, retries
        self.abilities = abilities
        self.extra = dict(extra or {})
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="request")

    @property
    def batches(self) -> bool:
        """Whether the server has ``n``."""
        return "n" in self.abilities

    def close(self) -> None:
        """End the threads and connections; what is under way comes to its end."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    def draw(self, problem: int, question: str, indices: Sequence[int]) -> None:
        """Draw traces: in one request those of one temperature where the server has ``n``, else in one each."""
        drawn = [index for index in indices if index != GREEDY]
        groups = [[GREEDY]] if GREEDY in indices else []
        groups += [drawn] if self.batches and drawn else [[index] for index in drawn]
        asked: list[Future[None]] = [
            self._pool.submit(self._one, problem, question, group) for group in groups
        ]
        errors = [error for one in asked if (error := one.exception()) is not None]
        if errors:
            raise next((e for e in errors if isinstance(e, CallFailedError)), errors[0])

    def probe(self, problem: int, question: str, text: str, tokens: int) -> None:
        """Go on behind the model's own text, at temperature 0."""
        body = self.body(question, [GREEDY], problem)
        body["max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"] = tokens
        if self.interface == "chat":
            messages = [*body["messages"], {"role": "assistant", "content": text}]
            body |= {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}
        else:
            body["prompt"] += text
        answer, name = self._pool.submit(self.call, problem, body, "probe").result()
        self._keep(name, problem, answer, [digest_of(text)])

    def hello(self, fields: Mapping[str, Any]) -> ChatAnswer:
        """Send a request of one token that asks no question, with further fields, and keep what it cost.

        Raises:
            CallFailedError: The server refuses it.
        """
        # As traces are drawn: there are models that know one temperature alone.
        body = self.body("Hello.", [0], NO_PROBLEM)
        body["max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"] = 1
        most = min(RETRIES_OF_A_FIELD, self._retries) if fields else self._retries
        answer, name = self.call(NO_PROBLEM, body | dict(fields), "hello", server_errors=most)
        self._keep(name, NO_PROBLEM, answer, ())
        return answer

    def _one(self, problem: int, question: str, group: Sequence[int]) -> None:
        """Draw traces in one request; of a server that gives fewer texts the others are asked for after it."""
        left = list(group)
        while left:
            what = "greedy" if left[0] == GREEDY else f"traces {', '.join(map(str, left))}"
            answer, name = self.call(problem, self.body(question, left, problem), what)
            self._keep(name, problem, answer, left)
            left = left[len(answer.choices) :]

    def body(self, question: str, group: Sequence[int], problem: int) -> dict[str, Any]:
        """Return the fields of a request for some traces of a question."""
        asking = self._asking
        greedy = group[0] == GREEDY
        body: dict[str, Any] = {
            "model": self._model,
            "temperature": 0.0 if greedy else asking.temperature,
            "max_tokens": asking.max_tokens,
        }
        stops = list(asking.stop)
        if self.interface == "chat":
            body["messages"] = asking.messages(question)
        else:
            body["prompt"] = plain_prompt(asking.system, question)
            stops.append(NEXT_QUESTION)
        if stops:
            body["stop"] = stops
        if len(group) > 1:
            body["n"] = len(group)
        if "seed" in self.abilities:
            body["seed"] = asking.seed_of(problem, group[0])
        if "logprobs" in self.abilities:
            body |= LOGPROBS[self.interface]
        if not greedy:
            body |= {name: value for name, value in WHOLE.items() if name in self.abilities}
        if asking.template_options:
            body["chat_template_kwargs"] = dict(asking.template_options)
        if "max_completion_tokens" in self.abilities:
            body["max_completion_tokens"] = body.pop("max_tokens")
        return body | self.extra

    def call(
        self, problem: int, body: Mapping[str, Any], what: str, *, server_errors: int | None = None
    ) -> tuple[ChatAnswer, str]:
        """Send a request until it is answered; return the answer and the attempt's name.

        The caller keeps the answer in the journal at once. ``server_errors`` are the most retries after a status of 500
        and above; None takes as many as of others.

        Raises:
            CallFailedError: It failed for good.
            SpentError: A budget is used up.
        """
        reserved = len(str(body.get("messages") or body.get("prompt"))) / LETTERS_OF_A_TOKEN
        most = body.get("max_tokens") or body["max_completion_tokens"]
        reserved += float(most) * int(body.get("n", 1))
        for attempt in range(self._retries + 1):
            entry = self._pace.leave(reserved)
            name = self._journal.name()
            self._journal.sent(name, problem, what)
            try:
                answer = self._client.send(body, name)
            except ChatError as error:
                broke = server_errors is not None and (error.status or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR
                allowed = server_errors if broke and server_errors is not None else self._retries
                again = error.again and attempt < allowed
                self._journal.ended(
                    name, problem, again=again, what=error.what, status=error.status, unknown=error.unknown
                )
                self._pace.settle(entry, 0.0)
                if not again:
                    times = f" (tried {attempt + 1} times)" if attempt else ""
                    raise CallFailedError(f"{what}: {error.what}{times}", error.status) from None
                pause = min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S)
                self._pace.hold(pause if error.pause_s is None else error.pause_s)
            else:
                self._pace.settle(entry, answer.prompt_tokens + answer.completion_tokens)
                return answer, name
        raise AssertionError("unreachable")

    def _keep(self, name: str, problem: int, answer: ChatAnswer, names: Sequence[int | str]) -> None:
        self._journal.answered(
            name,
            problem,
            {
                number: Kept(
                    text=one.text,
                    thinking=one.thinking,
                    finish=one.finish,
                    tokens=one.tokens,
                    prompt_tokens=answer.prompt_tokens,
                    seconds=answer.seconds,
                    pieces=one.pieces,
                    logprobs=one.logprobs,
                    entropies=one.entropies,
                )
                for number, one in zip(names, answer.choices, strict=False)
            },
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            cached_tokens=answer.cached_tokens,
            seconds=answer.seconds,
        )


def plain_prompt(system: str, question: str) -> str:
    """Return the text that a model completes which knows no chat."""
    begin = f"{system}\n\n" if system else ""
    return f"{begin}Question: {question}\n\nAnswer:"


class LocalSource:
    """A network in this process, one question's traces in a batch; draws are decided by seed, problem and index.

    Args:
        model: A ``TransformersModel``.
        tags: What thinking begins and ends with in a text, beside the usual marks.
    """

    def __init__(
        self, model: Any, asking: Asking, journal: Journal, pace: Pace, *, tags: tuple[str, str] | None = None
    ) -> None:
        self._model, self._asking, self._journal, self._pace = model, asking, journal, pace
        self._tags, self._lock = tags, threading.Lock()
        self._stops = asking.stop if model.has_template else (*asking.stop, NEXT_QUESTION)

    @property
    def batches(self) -> bool:
        """A batch reads its prompt once."""
        return True

    def close(self) -> None:
        """There is nothing to close."""

    def prompt(self, question: str) -> tuple[int, ...]:
        """Return the tokens that ask a question: by the tokenizer's chat template, else as a text to complete."""
        asking = self._asking
        if not self._model.has_template:
            return tuple(self._model.chat(plain_prompt(asking.system, question)))
        return tuple(self._model.chat(question, system=asking.system, options=asking.template_options))

    def draw(self, problem: int, question: str, indices: Sequence[int]) -> None:
        """Draw traces together."""
        asking = self._asking
        keys = {
            index: Draw(
                key=(asking.seed, problem, index), temperature=0.0 if index == GREEDY else asking.temperature
            )
            for index in indices
        }
        self._decode(problem, self.prompt(question), keys, asking.max_tokens)

    def probe(self, problem: int, question: str, text: str, tokens: int) -> None:
        """Go on behind the model's own text."""
        prompt = (*self.prompt(question), *self._model.encode(text))
        key = Draw(key=(self._asking.seed, problem), temperature=0.0)
        self._decode(problem, prompt, {digest_of(text): key}, tokens)

    def _decode(self, problem: int, prompt: tuple[int, ...], draws: Mapping[Any, Draw], tokens: int) -> None:
        if len(prompt) >= self._model.context:
            raise CallFailedError(
                f"the prompt has {number_of(len(prompt), 'token')}, and the model's context {self._model.context}"
            )
        with self._lock:
            self._pace.leave(len(prompt) + tokens * len(draws))
            name = self._journal.name()
            self._journal.sent(name, problem, "batch")
            begun = self._pace.now()
            handles = {self._model.begin(prompt, draw): number for number, draw in draws.items()}
            try:
                for handle in handles:
                    self._model.advance(handle, min(tokens, self._model.context - len(prompt)))
                found: dict[Any, Any] = {}
                while len(found) < len(handles):
                    for piece in self._model.poll():
                        found[handles[piece.trace]] = piece
            finally:
                for handle in handles:
                    self._model.drop(handle)
            seconds = self._pace.now() - begun
        kept = {number: self._kept(found[number], prompt, seconds) for number in draws}
        self._journal.answered(
            name,
            problem,
            kept,
            prompt_tokens=len(prompt),
            completion_tokens=sum(len(piece.tokens) for piece in found.values()),
            cached_tokens=None,
            seconds=seconds,
        )

    def _kept(self, piece: Any, prompt: tuple[int, ...], seconds: float) -> Kept:
        # A template may open the thinking itself, which leaves the mark in the prompt.
        text = opened_thinking(self._model.decode(prompt)) + self._model.decode(piece.tokens)
        count = len(piece.tokens)
        ended = bool(piece.tokens) and piece.tokens[-1] in self._model.end
        for stop in self._stops:
            if stop in text:
                # Decoded to the end and cut here: what a server would have stopped at is what counts.
                text = text.partition(stop)[0]
                ended = True
                count = min(count, len(self._model.encode(text + stop)))
        thinking, answer = split_thinking(text, self._tags)
        entropies = tuple(one if math.isfinite(one) else 0.0 for one in piece.entropies[:count])
        return Kept(
            text=answer,
            thinking=thinking,
            finish="stop" if ended else "length",
            tokens=count,
            prompt_tokens=len(prompt),
            seconds=seconds,
            logprobs=tuple(piece.logprobs[:count]),
            entropies=entropies,
        )
