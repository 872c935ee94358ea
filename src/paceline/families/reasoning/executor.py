"""Runs a technique's plans over a model: one batch for all questions, every token counted from outside.

Questions are admitted as long as few traces are under way, so the model's batch stays full while each question's rounds
wait only for their own replies. Techniques name traces by numbers that count from 0 in every question, and never say
which tokens a trace is to continue by: the question's probe, the opening of a part, or what forks wrote.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paceline.families.reasoning.language import Draw, LanguageModel, Piece
from paceline.families.reasoning.lineage import Trace, kept_tokens
from paceline.families.reasoning.requests import (
    Drop,
    Extend,
    Finished,
    Fork,
    Join,
    Ledger,
    Method,
    Plan,
    Probe,
    Question,
    Reader,
    Reply,
    Request,
    Sample,
    Story,
    Task,
)

Draws = Callable[[int, int], tuple[int, ...]]
"""Gives the key of a trace by its question's number and its index."""

MAX_ROUNDS = 10_000
NO_TRACE = -1
"""Number of a fork or join for which the model's context has no room: it has ended before it began."""


class PlanError(Exception):
    """A technique asked for something that a question does not offer; its text is the reason in the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What of a question techniques do not see."""

    prompt: tuple[int, ...]
    openings: tuple[tuple[int, ...], ...]
    """Tokens with which each part begins."""
    part_end: tuple[int, ...]
    """Tokens that end a part."""
    probe: tuple[int, ...]
    """Forced tokens after which a trace names its answer."""
    probe_tokens: int
    """Most tokens of such an answer."""


@dataclass(slots=True, kw_only=True)
class _Seat:
    """One question that is being answered."""

    question: Question
    script: Script
    plan: Plan
    ledger: Ledger = field(default_factory=Ledger)
    traces: dict[int, Trace] = field(default_factory=dict)
    """By number."""
    round: tuple[Request, ...] = ()
    under_way: set[int] = field(default_factory=set)
    """Traces of this round that decode."""
    num_waiting: int = 0
    """Requests of this round without a reply."""
    replies: dict[int, Reply] = field(default_factory=dict)
    answer: str | None = None
    seen: set[str] = field(default_factory=set)
    """Answers of its traces and probes: it cannot have another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What a trace of the model decodes for."""

    seat: _Seat
    place: int
    """In the round."""
    trace: int
    """Number of the trace, or of the one that is probed."""
    probe: tuple[int, ...] | None = None


class Executor:
    """Answers questions with one method on one model."""

    def __init__(
        self,
        model: LanguageModel,
        task: Task,
        scripts: Sequence[Script],
        *,
        reader: Reader,
        draws: Draws,
        width: int,
    ) -> None:
        self.model, self.task, self.reader, self.draws = model, task, reader, draws
        self.scripts = scripts
        """By the question's number."""
        self.width = width
        """Traces under way up to which further questions are admitted."""
        self._jobs: dict[int, _Job] = {}
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
            self._jobs.clear()
            for handle in tuple(self._open):
                self._forget(handle)
        return [
            Finished(
                number=s.question.number,
                answer=s.answer,
                ledger=s.ledger,
                stories=tuple(_story(trace) for trace in s.traces.values()),
            )
            for s in seats
        ]

    def _run(self, questions: Sequence[Question], method: Method) -> list[_Seat]:
        queue, seats = deque(questions), list[_Seat]()
        while queue or self._jobs:
            while queue and len(self._jobs) < self.width:
                question = queue.popleft()
                script = self.scripts[question.number]
                seats.append(seat := _Seat(question=question, script=script, plan=method(question)))
                self._go_on(seat, None)
            for piece in self.model.poll() if self._jobs else ():
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
            seat.round, seat.replies, seat.under_way = tuple(asked), {}, set()
            for place, request in enumerate(seat.round):
                self._start(seat, place, request)
            if seat.num_waiting:
                return
            replies = self._close(seat)

    def _start(self, seat: _Seat, place: int, request: Request) -> None:
        match request:
            case Sample():
                self._sample(seat, place, request)
            case Extend():
                trace = self._own(seat, request.trace)
                if trace.ended:
                    raise PlanError(f"trace {request.trace} has ended and cannot go on")
                self._advance(seat, place, request.trace, request.tokens)
            case Fork():
                self._fork(seat, place, request)
            case Join():
                self._join(seat, place, request)
            case Probe():
                self._probe(seat, place, request)
            case Drop():
                self._drop(seat, request.trace)
                seat.replies[place] = Reply(trace=request.trace)
            case _:
                raise PlanError(f"{type(request).__name__} is not a request")

    def _sample(self, seat: _Seat, place: int, request: Sample) -> None:
        if not 0 <= request.index < self.task.samples:
            raise PlanError(
                f"sample {request.index} is outside of the {self.task.samples} that a question has"
            )
        if any(t.index == request.index for t in seat.traces.values()):
            raise PlanError(f"sample {request.index} has been begun before")
        key = self.draws(seat.question.number, request.index)
        temperature = 0.0 if request.greedy else self.task.temperature
        handle = self.model.begin(seat.script.prompt, Draw(key=key, temperature=temperature))
        self._open.add(handle)
        number = len(seat.traces)
        seat.traces[number] = Trace(handle=handle, index=request.index, key=key, temperature=temperature)
        seat.ledger.traces += 1
        self._advance(seat, place, number, request.tokens)

    def _fork(self, seat: _Seat, place: int, request: Fork) -> None:
        parent = self._own(seat, request.trace)
        if not 0 <= request.part < seat.question.num_parts:
            raise PlanError(
                f"part {request.part} is outside of the {seat.question.num_parts} that a question has"
            )
        if request.part in parent.forked:
            raise PlanError(f"part {request.part} of trace {request.trace} has been begun before")
        parent.forked.add(request.part)
        self._continue(seat, place, request.trace, seat.script.openings[request.part], seat.script.part_end)

    def _join(self, seat: _Seat, place: int, request: Join) -> None:
        parent = self._own(seat, request.trace)
        if parent.joined:
            raise PlanError(f"trace {request.trace} has been joined before")
        if not request.forks:
            raise PlanError(f"nothing is joined to trace {request.trace}")
        parent.joined = True
        forced: list[int] = []
        for number in request.forks:
            fork = seat.traces.get(number)
            if fork is None or fork.parent != request.trace or fork.index is not None:
                raise PlanError(f"trace {number} is no fork of trace {request.trace}")
            if number in seat.under_way:
                raise PlanError(f"trace {number} is joined in the round that lets it go on")
            forced += (*fork.forced, *fork.tokens)
        self._continue(seat, place, request.trace, tuple(forced), ())

    def _continue(
        self, seat: _Seat, place: int, number: int, forced: tuple[int, ...], stop: tuple[int, ...]
    ) -> None:
        """Begin a trace that continues another one by forced tokens."""
        parent = seat.traces[number]
        copied = self._copy(seat, number, forced, parent.temperature)
        if copied is None:
            seat.replies[place] = Reply(trace=NO_TRACE, ended=True)
            return
        handle, key = copied
        seat.traces[len(seat.traces)] = Trace(
            handle=handle,
            index=None,
            key=key,
            temperature=parent.temperature,
            parent=number,
            inherited=parent.text,
            forced=forced,
        )
        seat.ledger.forks += 1
        self._advance(seat, place, len(seat.traces) - 1, None, stop)

    def _probe(self, seat: _Seat, place: int, request: Probe) -> None:
        copied = self._copy(seat, request.trace, seat.script.probe, 0.0)
        if copied is None:
            seat.replies[place] = Reply(trace=request.trace, ended=True)
            return
        self.model.advance(copied[0], seat.script.probe_tokens)
        self._jobs[copied[0]] = _Job(seat=seat, place=place, trace=request.trace, probe=seat.script.probe)
        seat.num_waiting += 1

    def _copy(
        self, seat: _Seat, number: int, forced: tuple[int, ...], temperature: float
    ) -> tuple[int, tuple[int, ...]] | None:
        """Let the model copy a trace; return the copy's handle and its draw's key, None where there is no room."""
        trace = self._own(seat, number)
        if number in seat.under_way:
            raise PlanError(f"trace {number} is copied in the round that lets it go on")
        key = (*trace.key, len(trace.tokens), trace.num_copies)
        trace.num_copies += 1
        if len(seat.script.prompt) + len(trace.text) + len(forced) >= self.task.context:
            return None
        handle = self.model.fork(trace.handle, forced, Draw(key=key, temperature=temperature))
        self._open.add(handle)
        seat.ledger.forced += len(forced)
        return handle, key

    def _advance(
        self, seat: _Seat, place: int, number: int, tokens: int | None, stop: tuple[int, ...] = ()
    ) -> None:
        if number in seat.under_way:
            raise PlanError("a trace is named twice in one round")
        if tokens is not None and tokens < 0:
            raise PlanError(f"asked for {tokens} tokens")
        if tokens == 0:
            seat.replies[place] = Reply(trace=number)
            return
        handle = seat.traces[number].handle
        self.model.advance(handle, self.task.context if tokens is None else tokens, stop)
        seat.under_way.add(number)
        seat.num_waiting += 1
        self._jobs[handle] = _Job(seat=seat, place=place, trace=number)

    def _own(self, seat: _Seat, number: int) -> Trace:
        trace = seat.traces.get(number)
        if trace is None:
            raise PlanError(f"trace {number} is not one of this question's")
        if trace.dropped:
            raise PlanError(f"trace {number} has been dropped")
        return trace

    def _drop(self, seat: _Seat, number: int) -> None:
        trace = self._own(seat, number)
        if number in seat.under_way:
            raise PlanError(f"trace {number} is dropped in the round that lets it go on")
        trace.dropped = True
        self._forget(trace.handle)

    def _arrived(self, piece: Piece) -> None:
        job = self._jobs.pop(piece.trace)
        seat, trace = job.seat, job.seat.traces[job.trace]
        if job.probe is not None:
            seat.ledger.probed += len(piece.tokens)
            text: Sequence[int] = (*trace.text, *job.probe, *piece.tokens)
            self._forget(piece.trace)
        else:
            trace.tokens += piece.tokens
            trace.ended = piece.ended
            seat.ledger.decoded += len(piece.tokens)
            text = trace.text
        answer = self.reader(text) if piece.ended else None
        if answer is not None:
            seat.seen.add(answer)
        seat.replies[job.place] = Reply(
            trace=job.trace,
            tokens=piece.tokens,
            logprobs=piece.logprobs,
            entropies=piece.entropies,
            ended=piece.ended,
            answer=answer,
        )
        seat.num_waiting -= 1
        if not seat.num_waiting:
            self._go_on(seat, self._close(seat))

    def _close(self, seat: _Seat) -> tuple[Reply, ...]:
        """End a round: what it added to the longest chain, and what is live now."""
        replies = tuple(seat.replies[i] for i in range(len(seat.round)))
        ledger = seat.ledger
        ledger.critical += max((len(r.tokens) for r in replies), default=0)
        live = {
            number
            for number, t in seat.traces.items()
            if not t.dropped and (not t.ended or number in seat.under_way)
        }
        if live:
            ledger.peak_traces = max(ledger.peak_traces, len(live))
            kept = len(seat.script.prompt) + kept_tokens(seat.traces, live)
            ledger.peak_cache = max(ledger.peak_cache, kept)
        seat.under_way = set()
        return replies

    def _finish(self, seat: _Seat, answer: str | None) -> None:
        if answer is not None and not isinstance(answer, str):
            raise PlanError(f"the answer is {type(answer).__name__}, and not text or None")
        if answer is not None and answer not in seat.seen:
            raise PlanError(f"none of its traces answers '{answer}'")
        seat.answer = answer
        for trace in seat.traces.values():
            seat.ledger.stopped += trace.stopped
            if not trace.dropped:
                self._forget(trace.handle)


def _story(trace: Trace) -> Story:
    return Story(
        index=trace.index,
        temperature=trace.temperature,
        tokens=trace.text,
        num_forced=len(trace.inherited) + len(trace.forced),
        ended=trace.ended,
    )
