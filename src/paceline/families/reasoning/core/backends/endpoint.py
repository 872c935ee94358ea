"""A connection to an endpoint that speaks the OpenAI interface: many streams at once, on a thread of its own.

A stream is a ``Job``: a prompt, and what has come behind it. One that breaks goes on behind what had come; one whose
stop has come is closed, so that the server ends too. Requests that were refused for capacity, or failed, are sent again
by the library, with growing pauses or with those that the server names. The key is read from ``OPENAI_API_KEY`` and
from nowhere else, and no error holds it.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import itertools
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from paceline.base.counting import number_of
from paceline.base.errors import PrerequisiteError
from paceline.families.reasoning.core.backends.endpoint_errors import (
    EndpointError,
    MalformedAnswerError,
    UnreachableError,
    bare_url,
    of_status,
    said,
)
from paceline.families.reasoning.core.backends.token_texts import END, Part, Texts, part_of, scores
from paceline.families.reasoning.core.language import Draw

KEY = "OPENAI_API_KEY"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 8.0
"""Before an interrupted stream goes on: doubled every time."""
END_LIMIT_S = 10.0
NEXT_QUESTIONS = ("\nQuestion:",)
"""Sent as stops: a model that only continues texts goes on to ask itself the next question (``OpenAIModel.chat``)."""
STREAM = "text/event-stream"
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Job:
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
    stopped_silently: bool = False
    """Whether the server has stopped and named no end: it may have kept the text of a stop."""
    error: BaseException | None = None
    future: Future[None] | None = None


class _InterruptedError(Exception):
    """A stream has ended in the middle."""


class Endpoint:
    """A server's address and the streams that are open there.

    Args:
        model: Its name at the server.
        url: The address below which ``/completions`` lies.
        texts: The numbers of tokens' texts, which streams add to.
        done: Called with every job that has ended, on the endpoint's thread.
        limit: Streams at once.
        top_logprobs: Likeliest tokens that are asked for; 0 where the server gives none.
        retries: Of a request, and of a stream that broke.
        timeout_s: To connect, and between two messages of a stream.

    Raises:
        PrerequisiteError: The package openai is not installed.
        UserError: The address is none.
    """

    def __init__(
        self,
        model: str,
        url: str,
        texts: Texts,
        done: Callable[[Job], None],
        *,
        limit: int,
        top_logprobs: int,
        retries: int,
        timeout_s: float,
    ) -> None:
        self.url = bare_url(url)
        try:
            self._library: Any = importlib.import_module("openai")
        except ImportError as error:
            raise PrerequisiteError(
                "endpoints need the package openai", where=self.url, fix="pip install 'paceline[openai]'"
            ) from error
        self._model, self._texts, self._done = model, texts, done
        self._top, self._retries = top_logprobs, retries
        self._key = os.environ.get(KEY, "")
        self.num_unused = 0
        """Tokens that had come behind a stop."""
        self.num_interrupted = 0
        """Streams that broke and went on."""
        # The library insists on a key; servers without one are given a word.
        self._client: Any = self._library.AsyncOpenAI(
            api_key=self._key or "none", base_url=url, max_retries=retries, timeout=timeout_s
        )
        self._loop = asyncio.new_event_loop()
        # Streams wait here and not in the server, whose refusals for capacity would use up their retries.
        self._slots = asyncio.Semaphore(limit)
        self.thread = threading.Thread(target=self._loop.run_forever, name="openai-model", daemon=True)
        self.thread.start()

    def ask(self, job: Job) -> None:
        """Begin a job; ``done`` tells when it has ended."""
        job.future = self._soon(self._answer(job))

    def score(self, begin: str, wanted: Sequence[str]) -> Future[list[float]]:
        """Return the log-probabilities of texts behind a beginning, when the server has told them.

        The future raises EndpointError where the server does not echo, or has tokens across the ends of these.
        """
        return self._soon(self._score(begin, wanted))

    def close(self) -> None:
        """Close all connections and end the thread."""
        if self._loop.is_closed():
            return
        self._soon(self._end()).result(END_LIMIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.thread.join(END_LIMIT_S)
        self._loop.close()

    def _soon(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.close()

    async def _answer(self, job: Job) -> None:
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
                                where=self.url,
                                expected="a stream up to its finish_reason",
                                fix="give a longer timeout_s or a smaller limit, or look at the server's log",
                            ) from None
                        self.num_interrupted += 1
                        await asyncio.sleep(min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S))
        except Exception as error:  # told by poll, in the caller's thread
            error.__context__ = None  # the library's errors hold the request with its key
            job.error = error
        self._done(job)

    async def _stream(self, job: Job) -> None:
        """Let the server go on with a job.

        Raises:
            _InterruptedError: The connection broke, or was silent for too long.
            EndpointError: It cannot be helped.
        """
        # The place is in the seed: a stream that goes on behind a break must not repeat the numbers of its beginning.
        digest = hashlib.blake2b(repr((job.draw.key, job.position, len(job.tokens))).encode(), digest_size=4)
        # Text that a server keeps back for a stop would come as one message: without logprobs tokens could not be told.
        options: dict[str, Any] = {"logprobs": self._top, "stop": list(NEXT_QUESTIONS)} if self._top else {}
        stream = await self._request(
            prompt=job.prompt + job.text,
            max_tokens=job.wanted - len(job.tokens),
            temperature=job.draw.temperature,
            # 31 bits, which servers take as a signed whole number.
            seed=int.from_bytes(digest.digest()) >> 1,
            stream=True,
            stream_options={"include_usage": True},
            **options,
        )
        # The server counts each stream by itself, so its usage is held against this stream's tokens alone.
        job.counted = 0
        async with stream:
            kind = stream.response.headers.get("content-type", "none")
            if not kind.startswith(STREAM):
                raise self._malformed(f"content of type {kind}", f"a stream of type {STREAM}")
            try:
                async for message in stream:
                    self._take(job, message)
                    # Only behind a stop of our own: a stream that ended by itself still has its usage to send.
                    if job.complete and (self._stopped(job) or _asks(job.text)):
                        return  # which closes the connection
            except (self._library.APIConnectionError, self._library.APITimeoutError) as error:
                if not job.complete:
                    raise _InterruptedError(said(str(error), self._key)) from None
            except self._library.APIError as error:
                raise of_status(500, said(str(error.message), self._key), self.url) from None
            except ValueError as error:
                raise self._malformed(said(str(error), self._key), "messages of /completions") from None
        if not job.complete:
            raise _InterruptedError("it ended without a finish_reason")

    def _take(self, job: Job, message: Any) -> None:
        """Add what a message brought.

        Raises:
            ValueError: It is not what the interface says, or the server counts otherwise.
        """
        part = part_of(message, bool(self._top))
        if part is not None and part.texts:
            self._take_tokens(job, part)
        if part is not None and part.finish is not None and not job.complete:
            job.complete = True
            # Servers differ in whether the end is a token of the stream; here every trace that ended has one.
            if part.finish == "stop" and not part.has_end and len(job.tokens) < job.wanted:
                job.tokens.append(END)
                job.logprobs.append(0.0)
                job.entropies.append(0.0)
                job.stopped_silently = True
            # "length" with fewer tokens than asked is the server's own longest context: nothing can follow there
            # either.
            job.ended = part.finish != "length" or len(job.tokens) < job.wanted
        usage = getattr(message, "usage", None)
        count = getattr(usage, "completion_tokens", None)
        # A server may count the end, which it need not have named, and the tokens of a stop, whose text it keeps.
        unnamed = max(map(len, NEXT_QUESTIONS)) if self._top and job.stopped_silently else 1
        if count is not None and not 0 <= count - job.counted <= unnamed:
            raise ValueError(
                f"the server counts {number_of(count, 'token')}, and its stream had {job.counted}"
            )

    def _take_tokens(self, job: Job, part: Part) -> None:
        places = range(len(part.texts))
        for place in places:
            job.counted += 1
            # A server writes on until it sees the closed connection; what comes meanwhile is counted, and in no trace.
            if job.complete:
                self.num_unused += 1
                continue
            if len(job.tokens) == job.wanted:
                raise ValueError(f"more than the {number_of(job.wanted, 'token')} that were asked for")
            text = part.texts[place]
            is_end = part.has_end and place == places[-1]
            job.tokens.append(END if is_end else self._texts.number(text))
            job.logprobs.append(part.logprobs[place])
            job.entropies.append(part.entropies[place])
            job.text += "" if is_end else text
            # Only the end of the text that the new letters could have changed: searching all of it would be quadratic
            # in its length.
            job.complete = self._stopped(job, len(text))
            # A server may take no notice of stops.
            if _asks(job.text[-(len(text) + max(map(len, NEXT_QUESTIONS))) :]):
                job.complete = job.ended = True

    def _stopped(self, job: Job, fresh: int | None = None) -> bool:
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
            failure = of_status(error.status_code, said(error.message, self._key), self.url)
        except self._library.APIConnectionError as error:  # of which a time that is up is one
            cause = error.__cause__ or error
            failure = UnreachableError(
                f"no answer: {said(str(error), self._key)} ({type(cause).__name__})",
                where=self.url,
                expected="a server that answers within timeout_s",
                fix="start it, check the address, or give a longer timeout_s",
            )
        except (self._library.APIError, ValueError) as error:
            failure = self._malformed(said(str(error), self._key), "JSON of /completions")
        raise failure  # here, where it has no context: the library's errors hold the request with its key

    def _malformed(self, what: str, expected: str) -> EndpointError:
        return MalformedAnswerError(
            f"the server answers otherwise: {what}",
            where=self.url,
            expected=expected,
            fix="check the address and the server's version; give top_logprobs=0 where it has no logprobs",
        )


def _asks(text: str) -> bool:
    """Tell whether a text goes on to ask the next question."""
    return any(stop in text for stop in NEXT_QUESTIONS)
