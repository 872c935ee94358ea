"""Runs a technique's plans over a model: one batch for all questions, every token counted from outside.

Questions are admitted as long as few traces are under way, so the model's batch stays full while each question's rounds
wait only for their own replies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paceline.families.reasoning.language import Draw, LanguageModel, Piece
from paceline.families.reasoning.requests import (
    Drop,
    Extend,
    Finished,
    Fork,
    Ledger,
    Method,
    Plan,
    Probe,
    Question,
    Reader,
    Reply,
    Request,
    Sample,
    Task,
)

Draws = Callable[[Question, int], tuple[int, ...]]
"""Gives the key of a question's trace by its index."""

MAX_ROUNDS = 10_000
NO_TRACE = -1
"""Handle of a fork for which the model's context has no room: it has ended before it began."""


class PlanError(Exception):
    """A technique asked for something that a question does not offer; its text is the reason in the record."""


@dataclass(slots=True, kw_only=True)
class _Trace:
    index: int | None
    """None of what was forked."""
    key: tuple[int, ...]
    temperature: float
    before: int
    """Tokens before the first that it decodes, the prompt's included."""
    forced: tuple[int, ...] = ()
    """Those of them that are its own; none in a sample."""
    tokens: list[int] = field(default_factory=list)
    ended: bool = False
    dropped: bool = False
    num_copies: int = 0
    """Probes and forks of it."""

    @property
    def given_up(self) -> bool:
        """Whether it is a sample that was begun and did not come to its end."""
        return self.index is not None and bool(self.tokens) and not self.ended


@dataclass(slots=True, kw_only=True)
class _Seat:
    """One question that is being answered."""

    question: Question
    plan: Plan
    ledger: Ledger = field(default_factory=Ledger)
    traces: dict[int, _Trace] = field(default_factory=dict)
    """By the model's handle."""
    round: tuple[Request, ...] = ()
    waiting: dict[int, int] = field(default_factory=dict)
    """Place in the round of each trace under way."""
    replies: dict[int, Reply] = field(default_factory=dict)
    answer: str | None = None
    seen: set[str] = field(default_factory=set)
    """Answers of its traces and probes: it cannot have another one."""


class Executor:
    """Answers questions with one method on one model."""

    def __init__(
        self,
        model: LanguageModel,
        task: Task,
        prompts: Mapping[int, Sequence[int]],
        *,
        reader: Reader,
        draws: Draws,
        width: int,
    ) -> None:
        self.model, self.task, self.reader, self.draws = model, task, reader, draws
        self.prompts = prompts
        """By the question's key; techniques do not see them."""
        self.width = width
        """Traces under way up to which further questions are admitted."""
        self._owners: dict[int, _Seat] = {}
        self._probes: dict[int, int] = {}
        """Parent of each probe's trace."""
        self._open: set[int] = set()
        """The model's traces that have to be dropped, however the run ends."""

    def run(self, questions: Sequence[Question], method: Method) -> list[Finished]:
        """Answer all questions.

        Raises:
            PlanError: The technique asked for what a question does not offer, or goes on without end.
        """
        try:
            seats = self._run(questions, method)
        finally:
            for handle in tuple(self._open):
                self._forget(handle)
        return [
            Finished(
                key=s.question.key,
                answer=s.answer,
                ledger=s.ledger,
                traces={t.index: tuple(t.tokens) for t in s.traces.values() if t.index is not None},
            )
            for s in seats
        ]

    def _run(self, questions: Sequence[Question], method: Method) -> list[_Seat]:
        queue, seats = deque(questions), list[_Seat]()
        while queue or self._owners:
            while queue and len(self._owners) < self.width:
                question = queue.popleft()
                seats.append(seat := _Seat(question=question, plan=method(question)))
                self._go_on(seat, None)
            for piece in self.model.poll() if self._owners else ():
                self._arrived(piece)
        return seats

    def _forget(self, handle: int) -> None:
        self._open.discard(handle)
        self.model.drop(handle)

    def _go_on(self, seat: _Seat, replies: tuple[Reply, ...] | None) -> None:
        """Let a plan name its next round, until one has to be waited for or the plan has ended."""
        while True:
            try:
                asked = next(seat.plan) if replies is None else seat.plan.send(replies)
            except StopIteration as stop:
                self._finish(seat, stop.value)
                return
            seat.ledger.rounds += 1
            if seat.ledger.rounds > MAX_ROUNDS:
                raise PlanError(f"no answer after {MAX_ROUNDS} rounds")
            seat.round, seat.replies = tuple(asked), {}
            for place, request in enumerate(seat.round):
                self._start(seat, place, request)
            if seat.waiting:
                return
            replies = self._close(seat)

    def _start(self, seat: _Seat, place: int, request: Request) -> None:
        match request:
            case Sample():
                handle = self._begin(seat, request)
                self._advance(seat, handle, place, request.tokens, request.stop)
            case Extend():
                trace = self._own(seat, request.trace)
                if trace.ended:
                    raise PlanError(f"trace {request.trace} has ended and cannot go on")
                self._advance(seat, request.trace, place, request.tokens, request.stop)
            case Fork():
                self._fork(seat, place, request)
            case Probe():
                self._probe(seat, place, request)
            case Drop():
                self._drop(seat, request.trace)
                seat.replies[place] = Reply(trace=request.trace)
            case _:
                raise PlanError(f"{type(request).__name__} is not a request")

    def _begin(self, seat: _Seat, request: Sample) -> int:
        if not 0 <= request.index < self.task.samples:
            raise PlanError(
                f"sample {request.index} is outside of the {self.task.samples} that a question has"
            )
        if any(t.index == request.index for t in seat.traces.values()):
            raise PlanError(f"sample {request.index} has been begun before")
        key = self.draws(seat.question, request.index)
        temperature = self.task.temperature if request.temperature is None else request.temperature
        handle = self.model.begin(self.prompts[seat.question.key], Draw(key=key, temperature=temperature))
        self._open.add(handle)
        seat.traces[handle] = _Trace(
            index=request.index,
            key=key,
            temperature=temperature,
            before=len(self.prompts[seat.question.key]),
        )
        seat.ledger.traces += 1
        return handle

    def _probe(self, seat: _Seat, place: int, request: Probe) -> None:
        if request.tokens < 1:
            raise PlanError(f"a probe of {request.tokens} tokens")
        copied = self._copy(seat, request.trace, request.forced, request.temperature)
        if copied is None:
            seat.replies[place] = Reply(trace=request.trace, ended=True)
            return
        self._probes[copied[0]] = request.trace
        self._advance(seat, copied[0], place, request.tokens)

    def _fork(self, seat: _Seat, place: int, request: Fork) -> None:
        parent = self._own(seat, request.trace)
        copied = self._copy(seat, request.trace, request.forced, parent.temperature)
        if copied is None:
            seat.replies[place] = Reply(trace=NO_TRACE, ended=True)
            return
        handle, key = copied
        seat.traces[handle] = _Trace(
            index=None,
            key=key,
            temperature=parent.temperature,
            before=parent.before + len(parent.tokens) + len(request.forced),
            forced=request.forced,
        )
        seat.ledger.forks += 1
        self._advance(seat, handle, place, request.tokens, request.stop)

    def _copy(
        self, seat: _Seat, parent: int, forced: tuple[int, ...], temperature: float
    ) -> tuple[int, tuple[int, ...]] | None:
        """Let the model copy a trace; return the copy's handle and its draw's key, None where there is no room."""
        trace = self._own(seat, parent)
        if parent in seat.waiting:
            raise PlanError(f"trace {parent} is copied in the round that lets it go on")
        key = (*trace.key, len(trace.tokens), trace.num_copies)
        trace.num_copies += 1
        if trace.before + len(trace.tokens) + len(forced) >= self.task.context:
            return None
        handle = self.model.fork(parent, forced, Draw(key=key, temperature=temperature))
        self._open.add(handle)
        seat.ledger.forced += len(forced)
        return handle, key

    def _advance(
        self, seat: _Seat, handle: int, place: int, tokens: int | None, stop: tuple[int, ...] = ()
    ) -> None:
        if handle in seat.waiting:
            raise PlanError("a trace is named twice in one round")
        if tokens is not None and tokens < 0:
            raise PlanError(f"asked for {tokens} tokens")
        if tokens == 0:
            seat.replies[place] = Reply(trace=handle)
            return
        self.model.advance(handle, self.task.context if tokens is None else tokens, stop)
        seat.waiting[handle] = place
        self._owners[handle] = seat

    def _own(self, seat: _Seat, handle: int) -> _Trace:
        trace = seat.traces.get(handle)
        if trace is None:
            raise PlanError(f"trace {handle} is not one of this question's")
        if trace.dropped:
            raise PlanError(f"trace {handle} has been dropped")
        return trace

    def _drop(self, seat: _Seat, handle: int) -> None:
        trace = self._own(seat, handle)
        if handle in seat.waiting:
            raise PlanError(f"trace {handle} is dropped in the round that lets it go on")
        trace.dropped = True
        seat.ledger.dropped += trace.given_up
        self._forget(handle)

    def _arrived(self, piece: Piece) -> None:
        seat = self._owners.pop(piece.trace)
        place = seat.waiting.pop(piece.trace)
        parent = self._probes.pop(piece.trace, None)
        if parent is not None:
            seat.ledger.probed += len(piece.tokens)
            forced = seat.round[place].forced  # type: ignore[union-attr]  # _probe alone fills _probes
            answer = self.reader((*forced, *piece.tokens)) if piece.ended else None
            self._forget(piece.trace)
        else:
            trace = seat.traces[piece.trace]
            trace.tokens += piece.tokens
            trace.ended = piece.ended
            seat.ledger.decoded += len(piece.tokens)
            answer = self.reader((*trace.forced, *trace.tokens)) if piece.ended else None
        if answer is not None:
            seat.seen.add(answer)
        seat.replies[place] = Reply(
            trace=piece.trace if parent is None else parent,
            tokens=piece.tokens,
            logprobs=piece.logprobs,
            entropies=piece.entropies,
            ended=piece.ended,
            answer=answer,
        )
        if not seat.waiting:
            self._go_on(seat, self._close(seat))

    def _close(self, seat: _Seat) -> tuple[Reply, ...]:
        """End a round: what it added to the longest chain, and what is live now."""
        replies = tuple(seat.replies[i] for i in range(len(seat.round)))
        ledger = seat.ledger
        ledger.critical += max((len(r.tokens) for r in replies), default=0)
        taking_part = {r.trace for r in replies}
        live = [t for h, t in seat.traces.items() if not t.dropped and (not t.ended or h in taking_part)]
        if live:
            own = sum(len(t.forced) + len(t.tokens) for t in live)
            ledger.peak_traces = max(ledger.peak_traces, len(live))
            ledger.peak_cache = max(ledger.peak_cache, len(self.prompts[seat.question.key]) + own)
        return replies

    def _finish(self, seat: _Seat, answer: str | None) -> None:
        if answer is not None and not isinstance(answer, str):
            raise PlanError(f"the answer is {type(answer).__name__}, and not text or None")
        if answer is not None and answer not in seat.seen:
            raise PlanError(f"none of its traces answers '{answer}'")
        seat.answer = answer
        for handle, trace in seat.traces.items():
            if not trace.dropped:
                self._forget(handle)
                seat.ledger.dropped += trace.given_up
