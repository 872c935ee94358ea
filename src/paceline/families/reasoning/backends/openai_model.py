"""A model behind an endpoint that speaks the OpenAI interface: ``/completions``, as streams, many at once.

Every request of the family is a stream of its own, which begins after all text so far: a server that keeps prefixes
reads that once. A trace that is dropped under way, and one that has written what it was to stop at, has its connection
closed, so that the server stops too; what had come behind a stop is counted in ``num_unused``.

Tokens are the server's, by the texts that its logprobs name; a prompt is one token here, however long. What a server
measures differs: logprobs are at temperature 1 where it gives raw ones; entropies are those of the likeliest tokens,
with all others as one more, which is a lower bound. Without logprobs (``top_logprobs=0``) each message counts as one
token and both are 0, and a server whose own count differs is refused.

Nothing is repeatable: a seed is sent that the draw decides, and servers may take it or not. Interrupted streams go on
behind what had come. The key is read from ``OPENAI_API_KEY`` and from nowhere else.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import itertools
import os
import queue
import threading
from collections.abc import Collection, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

from paceline.errors import PrerequisiteError
from paceline.families.reasoning.backends.endpoint_errors import (
    EndpointError,
    MalformedAnswerError,
    UnreachableError,
    bare_url,
    of_status,
    said,
)
from paceline.families.reasoning.backends.token_texts import END, SILENT, Part, Texts, part_of, scores
from paceline.families.reasoning.language import Continuation, Draw, Piece

KEY = "OPENAI_API_KEY"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 8.0
"""Before an interrupted stream goes on: doubled every time."""
END_LIMIT_S = 10.0
STREAM = "text/event-stream"
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class _Trace:
    tokens: list[int]
    """Prompt, forced and decoded ones."""
    draw: Draw
    ended: bool = False


@dataclass(slots=True, kw_only=True)
class _Job:
    """What one trace was asked for."""

    trace: int
    draw: Draw
    prompt: str
    position: int
    """Tokens before it: with the draw it decides the seed."""
    wanted: int
    stops: tuple[str, ...]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    text: str = ""
    complete: bool = False
    ended: bool = False
    counted: int = 0
    """Tokens of the present stream, as the server should count them."""
    error: BaseException | None = None
    future: Future[None] | None = None


class _InterruptedError(Exception):
    """A stream has ended in the middle."""


class OpenAIModel:
    """A model at an endpoint; implements ``LanguageModel``. A context: ``close`` ends its thread and connections.

    Args:
        model: Its name at the server.
        url: The address below which ``/completions`` lies.
        context: Most tokens of a trace, a prompt counted as one: with the longest prompt it has to fit the server's.
        limit: Streams at once.
        top_logprobs: Likeliest tokens that are asked for; 0 where the server gives none.
        retries: Of a request that was refused for capacity, failed or was interrupted, with growing pauses, or with
            those that the server names.
        timeout_s: To connect, and between two messages of a stream.

    Raises:
        PrerequisiteError: The package openai is not installed.
        UserError: The address is none.
    """

    def __init__(
        self,
        model: str,
        url: str,
        *,
        context: int,
        limit: int = 32,
        top_logprobs: int = 5,
        retries: int = 5,
        timeout_s: float = 120.0,
    ) -> None:
        try:
            self._library: Any = importlib.import_module("openai")
        except ImportError as error:
            raise PrerequisiteError(
                "endpoints need the package openai", where=bare_url(url), fix="pip install 'paceline[openai]'"
            ) from error
        if context < 2 or limit < 1 or top_logprobs < 0 or retries < 0 or not timeout_s > 0:
            raise ValueError(f"context {context}, limit {limit}, {top_logprobs}, {retries}, {timeout_s} s")
        self._model, self._url, self._context = model, bare_url(url), context
        self._top, self._retries = top_logprobs, retries
        self._key = os.environ.get(KEY, "")
        self.num_unused = 0
        """Tokens that had come behind a stop."""
        self.num_interrupted = 0
        """Streams that broke and went on."""
        self._texts = Texts()
        self._traces: dict[int, _Trace] = {}
        self._under_way: dict[int, _Job] = {}
        self._done: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._handles = itertools.count()
        self._client: Any = self._library.AsyncOpenAI(
            api_key=self._key or "none", base_url=url, max_retries=retries, timeout=timeout_s
        )
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(limit)
        self._thread = threading.Thread(target=self._loop.run_forever, name="openai-model", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Return the model."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close all connections and end the thread."""
        if self._loop.is_closed():
            return
        for handle in tuple(self._traces):
            self.drop(handle)
        self._soon(self._end()).result(END_LIMIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_LIMIT_S)
        self._loop.close()

    @property
    def identity(self) -> str:
        """Name and address: what a server has behind them nobody can tell from here."""
        return f"{self._model}@{self._url}"

    @property
    def context(self) -> int:
        """Most tokens of a trace, its prompt counted as the tokens that it has here."""
        return self._context

    @property
    def num_parameters(self) -> None:
        """Nobody tells."""
        return None

    @property
    def repeatable(self) -> bool:
        """Whether equal draws give equal tokens: never."""
        return False

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that have been tokens here, by their numbers."""
        return self._texts.known

    def encode(self, text: str) -> tuple[int, ...]:
        """Return a text as one token, whatever the server makes of it."""
        return (self._texts.number(text),) if text else ()

    def chat(self, question: str) -> tuple[int, ...]:
        """Return a prompt that asks a question; endpoints complete texts, so it looks like one that has an answer."""
        return self.encode(f"Question: {question}\n\nAnswer:")

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return self._texts.text(tokens)

    def begin(self, prompt: Sequence[int], draw: Draw) -> int:
        """Open a trace after a prompt and return its handle; nothing is asked for yet.

        Raises:
            ValueError: The prompt is empty or longer than the context, or a token is none.
        """
        return self._open(list(prompt), draw)

    def fork(self, trace: int, forced: Sequence[int], draw: Draw) -> int:
        """Open a trace that continues another one's present tokens by forced ones; the other one is left as it is.

        Raises:
            ValueError: The trace is unknown or under way, or what ``begin`` refuses.
        """
        parent = self._known(trace)
        if trace in self._under_way:
            raise ValueError(f"trace {trace} is under way and cannot be forked")
        return self._open([*parent.tokens, *forced], draw)

    def merge(self, trace: int, forks: Sequence[int], forced: Sequence[int], draw: Draw) -> int:
        """Refuse: keys and values of forks cannot be put behind each other here.

        Raises:
            ValueError: Always.
        """
        raise ValueError("this model cannot merge the caches of forks")

    def share(self, trace: int, openings: Sequence[int], draws: Sequence[Draw]) -> list[int]:
        """Refuse: traces cannot see each other here.

        Raises:
            ValueError: Always.
        """
        raise ValueError("this model cannot let traces read one cache")

    def advance(self, trace: int, tokens: int, stop: Collection[int] = ()) -> None:
        """Ask for up to this many tokens more, or up to the text of a stopping one; ``poll`` tells when it is there.

        The text of a stop may be several of the server's tokens; the one that completes it is the piece's last.

        Raises:
            ValueError: The trace is unknown, has ended, or is under way, or no token is asked for.
        """
        known = self._known(trace)
        if trace in self._under_way:
            raise ValueError(f"trace {trace} is under way already")
        if known.ended:
            raise ValueError(f"trace {trace} has ended")
        if tokens < 1:
            raise ValueError(f"{tokens} tokens asked of trace {trace}; at least 1")
        job = _Job(
            trace=trace,
            draw=known.draw,
            prompt=self._texts.text(known.tokens),
            position=len(known.tokens),
            wanted=min(tokens, self._context - len(known.tokens)),
            stops=tuple(self._texts.text([token]) for token in stop if token not in (END, SILENT)),
        )
        self._under_way[trace] = job
        job.future = self._soon(self._answer(job))

    def poll(self) -> list[Piece]:
        """Wait until something that was asked for is complete, and return all that is, by handle.

        Raises:
            EndpointError: A stream has failed for good; its trace is under way no more, the others are.
        """
        pieces: list[Piece] = []
        while self._under_way and not pieces:
            arrived = [self._done.get()]
            while not self._done.empty():
                arrived.append(self._done.get())
            failed = [job for job in arrived if job.error is not None]
            for job in failed[1:] + ([job for job in arrived if job.error is None] if failed else []):
                self._done.put(job)
            for job in failed[:1] or arrived:
                if self._under_way.get(job.trace) is job:
                    pieces.append(self._piece(job))
        return sorted(pieces, key=lambda piece: piece.trace)

    def score(self, asked: Sequence[Continuation]) -> list[list[float]]:
        """Return the log-probability of each token of each continuation, of servers that echo a prompt with logprobs.

        Raises:
            ValueError: A prompt is empty, or a token is none.
            EndpointError: The server does not echo, or has tokens across the ends of these.
        """
        if not all(prompt for prompt, _ in asked):
            raise ValueError("an empty prompt")
        texts = [
            (self._texts.text(prompt), [self._texts.text([token]) for token in continuation])
            for prompt, continuation in asked
        ]
        under_way = [self._soon(self._score(begin, wanted)) for begin, wanted in texts]
        return [one.result() for one in under_way]

    def drop(self, trace: int) -> None:
        """Forget a trace; when it is under way, its connection is closed.

        Raises:
            ValueError: The trace is unknown.
        """
        self._known(trace)
        job = self._under_way.pop(trace, None)
        if job is not None and job.future is not None:
            job.future.cancel()
        del self._traces[trace]

    def _open(self, tokens: list[int], draw: Draw) -> int:
        if not 1 <= len(tokens) <= self._context:
            raise ValueError(f"{len(tokens)} tokens; 1 to {self._context}")
        if not draw.temperature >= 0:
            raise ValueError(f"a temperature of {draw.temperature}; 0 or more")
        self._texts.text(tokens)
        handle = next(self._handles)
        self._traces[handle] = _Trace(tokens=tokens, draw=draw, ended=len(tokens) >= self._context)
        return handle

    def _known(self, trace: int) -> _Trace:
        if trace not in self._traces:
            raise ValueError(f"no trace {trace}; {len(self._traces)} are open")
        return self._traces[trace]

    def _piece(self, job: _Job) -> Piece:
        """Return what a job gave.

        Raises:
            EndpointError: It has failed.
        """
        del self._under_way[job.trace]
        if job.error is not None:
            raise job.error
        trace = self._traces[job.trace]
        trace.tokens += job.tokens
        trace.ended = job.ended or len(trace.tokens) >= self._context
        return Piece(
            trace=job.trace,
            tokens=tuple(job.tokens),
            logprobs=tuple(job.logprobs),
            entropies=tuple(job.entropies),
            ended=trace.ended,
        )

    def _soon(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.close()

    async def _answer(self, job: _Job) -> None:
        """Stream until a job is complete, and tell ``poll``."""
        try:
            async with self._slots:
                for attempt in itertools.count():
                    try:
                        await self._stream(job)
                        break
                    except _InterruptedError as error:
                        if attempt >= self._retries:
                            raise UnreachableError(
                                f"the stream broke {attempt + 1} times: {error}",
                                where=self._url,
                                expected="a stream up to its finish_reason",
                                fix="give a longer timeout_s or a smaller limit, or look at the server's log",
                            ) from None
                        self.num_interrupted += 1
                        await asyncio.sleep(min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S))
        except Exception as error:  # told by poll, in the caller's thread
            error.__context__ = None  # the library's errors hold the request with its key
            job.error = error
        self._done.put(job)

    async def _stream(self, job: _Job) -> None:
        """Let the server go on with a job.

        Raises:
            _InterruptedError: The connection broke, or was silent for too long.
            EndpointError: It cannot be helped.
        """
        digest = hashlib.blake2b(repr((job.draw.key, job.position, len(job.tokens))).encode(), digest_size=4)
        options = {"logprobs": self._top} if self._top else {}
        stream = await self._request(
            prompt=job.prompt + job.text,
            max_tokens=job.wanted - len(job.tokens),
            temperature=job.draw.temperature,
            seed=int.from_bytes(digest.digest()) >> 1,
            stream=True,
            stream_options={"include_usage": True},
            **options,
        )
        job.counted = 0
        async with stream:
            kind = stream.response.headers.get("content-type", "none")
            if not kind.startswith(STREAM):
                raise self._malformed(f"content of type {kind}", f"a stream of type {STREAM}")
            try:
                async for message in stream:
                    self._take(job, message)
                    if job.complete and self._stopped(job):
                        return  # which closes the connection
            except (self._library.APIConnectionError, self._library.APITimeoutError) as error:
                if not job.complete:
                    raise _InterruptedError(said(str(error), self._key)) from None
            except self._library.APIError as error:
                raise of_status(500, said(str(error.message), self._key), self._url) from None
            except ValueError as error:
                raise self._malformed(said(str(error), self._key), "messages of /completions") from None
        if not job.complete:
            raise _InterruptedError("it ended without a finish_reason")

    def _take(self, job: _Job, message: Any) -> None:
        """Add what a message brought.

        Raises:
            ValueError: It is not what the interface says, or the server counts otherwise.
        """
        part = part_of(message, bool(self._top))
        if part is not None and part.texts:
            self._take_tokens(job, part)
        if part is not None and part.finish is not None and not job.complete:
            job.complete = True
            if part.finish == "stop" and not part.has_end and len(job.tokens) < job.wanted:
                job.tokens.append(END)
                job.logprobs.append(0.0)
                job.entropies.append(0.0)
            job.ended = part.finish != "length" or len(job.tokens) < job.wanted
        usage = getattr(message, "usage", None)
        count = getattr(usage, "completion_tokens", None)
        # A server may count the end, which it need not have named.
        if count is not None and count - job.counted not in (0, 1):
            raise ValueError(f"the server counts {count} tokens, and its stream had {job.counted}")

    def _take_tokens(self, job: _Job, part: Part) -> None:
        places = range(len(part.texts))
        for place in places:
            job.counted += 1
            if job.complete:
                self.num_unused += 1
                continue
            if len(job.tokens) == job.wanted:
                raise ValueError(f"more than the {job.wanted} tokens that were asked for")
            text = part.texts[place]
            is_end = part.has_end and place == places[-1]
            job.tokens.append(END if is_end else self._texts.number(text))
            job.logprobs.append(part.logprobs[place])
            job.entropies.append(part.entropies[place])
            job.text += "" if is_end else text
            job.complete = self._stopped(job, len(text))

    def _stopped(self, job: _Job, fresh: int | None = None) -> bool:
        """Tell whether a stop's text is in a job's text, or in the end of it that the last letters have changed."""
        return any(
            stop in (job.text if fresh is None else job.text[-(fresh + len(stop)) :]) for stop in job.stops
        )

    async def _score(self, begin: str, wanted: Sequence[str]) -> list[float]:
        if not any(wanted):
            return [0.0] * len(wanted)
        async with self._slots:
            answer = await self._request(
                prompt=begin + "".join(wanted), max_tokens=1, temperature=0, logprobs=1, echo=True
            )
        try:
            given = answer.choices[0].logprobs
            return scores(given.tokens, given.token_logprobs, wanted, len(begin))
        except (AttributeError, IndexError, TypeError) as error:
            raise self._malformed(str(error), "the prompt's own logprobs, by echo") from None
        except ValueError as error:
            raise self._malformed(str(error), "tokens that begin and end with these texts") from None

    async def _request(self, **given: Any) -> Any:
        """Send a request; the library tries again where that may help, with pauses that grow or that the server names.

        Raises:
            EndpointError: It was refused, or did not arrive, for good.
        """
        try:
            return await self._client.completions.create(model=self._model, **given)
        except self._library.APIStatusError as error:
            failure = of_status(error.status_code, said(error.message, self._key), self._url)
        except self._library.APIConnectionError as error:  # of which a time that is up is one
            cause = error.__cause__ or error
            failure = UnreachableError(
                f"no answer: {said(str(error), self._key)} ({type(cause).__name__})",
                where=self._url,
                expected="a server that answers within timeout_s",
                fix="start it, check the address, or give a longer timeout_s",
            )
        except (self._library.APIError, ValueError) as error:
            failure = self._malformed(said(str(error), self._key), "JSON of /completions")
        raise failure  # here, where it has no context: the library's errors hold the request with its key

    def _malformed(self, what: str, expected: str) -> EndpointError:
        return MalformedAnswerError(
            f"the server answers otherwise: {what}",
            where=self._url,
            expected=expected,
            fix="check the address and the server's version; give top_logprobs=0 where it has no logprobs",
        )
