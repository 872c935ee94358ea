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

import itertools
import queue
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from paceline.base.counting import number_of
from paceline.families.reasoning.core.backends.endpoint import Endpoint, Job
from paceline.families.reasoning.core.backends.token_texts import END, SILENT, Texts
from paceline.families.reasoning.core.language import Continuation, Draw, Piece


@dataclass(slots=True, kw_only=True)
class _Trace:
    tokens: list[int]
    """Prompt, forced and decoded ones."""
    draw: Draw
    ended: bool = False


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
        if context < 2 or limit < 1 or top_logprobs < 0 or retries < 0 or not timeout_s > 0:
            raise ValueError(f"context {context}, limit {limit}, {top_logprobs}, {retries}, {timeout_s} s")
        self._model, self._context = model, context
        self._texts = Texts()
        self._traces: dict[int, _Trace] = {}
        self._under_way: dict[int, Job] = {}
        self._done: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._handles = itertools.count()
        self._endpoint = Endpoint(
            model,
            url,
            self._texts,
            self._done.put,
            limit=limit,
            top_logprobs=top_logprobs,
            retries=retries,
            timeout_s=timeout_s,
        )

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
        for handle in tuple(self._traces):
            self.drop(handle)
        self._endpoint.close()

    @property
    def num_unused(self) -> int:
        """Tokens that had come behind a stop."""
        return self._endpoint.num_unused

    @property
    def num_interrupted(self) -> int:
        """Streams that broke and went on."""
        return self._endpoint.num_interrupted

    @property
    def identity(self) -> str:
        """Name and address: what a server has behind them nobody can tell from here."""
        return f"{self._model}@{self._endpoint.url}"

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
        # For its error alone: a token that nobody has named must fail here, in the caller's line.
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
            raise ValueError(f"{number_of(tokens, 'token')} asked of trace {trace}; at least 1")
        job = Job(
            trace=trace,
            draw=known.draw,
            prompt=self._texts.text(known.tokens),
            position=len(known.tokens),
            # Never beyond the context, at which a trace ends in every model of the family.
            wanted=min(tokens, self._context - len(known.tokens)),
            stops=tuple(self._texts.text([token]) for token in stop if token not in (END, SILENT)),
        )
        self._under_way[trace] = job
        self._endpoint.ask(job)

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
            # One error a call: the others go back into the queue, so that no piece is lost with the exception.
            for job in failed[1:] + ([job for job in arrived if job.error is None] if failed else []):
                self._done.put(job)
            for job in failed[:1] or arrived:
                # A job that was dropped may have ended before it could be cancelled; by identity, so that it is told
                # from its successor.
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
        under_way = [self._endpoint.score(begin, wanted) for begin, wanted in texts]
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
            raise ValueError(f"{number_of(len(tokens), 'token')}; 1 to {self._context}")
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

    def _piece(self, job: Job) -> Piece:
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
