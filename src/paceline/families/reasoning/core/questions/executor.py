"""Runs a technique's plans over models: one batch for all questions, every token counted from outside.

Questions are admitted as long as few traces are under way, so the model's batch stays full while each question's rounds
wait only for their own replies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from paceline.families.reasoning.api.requests import Finished, Method, Question, Reader, Reply, Story, Task
from paceline.families.reasoning.core.language import Piece
from paceline.families.reasoning.core.questions.lineage import Trace, kept_tokens
from paceline.families.reasoning.core.questions.models import Draws, Models
from paceline.families.reasoning.core.questions.refusals import PlanError
from paceline.families.reasoning.core.questions.service import Service
from paceline.families.reasoning.core.questions.state import Job, QuestionState, Script

MAX_ROUNDS = 10_000
MOST_WAITING = 48
"""Steps that wait to be reviewed together, while others decode."""


class Executor:
    """Answers questions with one method."""

    def __init__(
        self,
        models: Models,
        task: Task,
        scripts: Sequence[Script],
        *,
        reader: Reader,
        draws: Draws,
        width: int,
    ) -> None:
        self.models, self.reader = models, reader
        self.scripts = scripts
        """By the question's number."""
        self.width = width
        """Traces under way up to which further questions are admitted."""
        self._service = Service(models, task, draws)

    def run(self, questions: Sequence[Question], method: Method) -> list[Finished]:
        """Answer all questions.

        Raises:
            PlanError: The technique asked for what a question does not offer, or goes on without end.
        """
        try:
            states = self._run(questions, method)
        finally:
            self._service.forget_all()
        return [
            Finished(
                number=s.number,
                answer=s.answer,
                ledger=s.ledger,
                stories=tuple(_story(trace) for trace in s.traces.values()),
                comparisons=tuple(s.comparisons),
            )
            for s in states
        ]

    def _run(self, questions: Sequence[Question], method: Method) -> list[QuestionState]:
        queue, states, jobs = deque(questions), list[QuestionState](), self._service.jobs
        while queue or jobs or self._service.reviews:
            while queue and len(jobs) + len(self._service.reviews) < self.width:
                question = queue.popleft()
                script = self.scripts[question.number]
                plan = method(
                    replace(question)
                )  # a copy: what a technique does to it stays with the technique
                states.append(
                    state := QuestionState(
                        number=question.number, question=question, script=script, plan=plan
                    )
                )
                self._go_on(state, None)
            # Reviews wait for company, as scoring one step alone wastes a batch, but never while nothing else goes on.
            if len(self._service.reviews) >= MOST_WAITING or not jobs:
                self._review()
            # Every model with work is polled once a turn; neither waits for the other's questions.
            for partner in sorted({partner for partner, _ in jobs}):
                for piece in self.models.get(partner).poll():
                    self._arrived(partner, piece)
        return states

    def _review(self) -> None:
        for state in self._service.review() if self._service.reviews else ():
            if not state.num_waiting:
                self._go_on(state, self._close(state))

    def _go_on(self, state: QuestionState, replies: tuple[Reply, ...] | None) -> None:
        """Let a plan name its next round, until one has to be waited for or the plan has ended."""
        while True:
            try:
                asked = next(state.plan) if replies is None else state.plan.send(replies)
            except StopIteration as stop:
                self._finish(state, stop.value)
                return
            state.ledger.rounds += 1
            # Rounds without tokens cost nothing, so a plan that never ends would not be stopped by its costs.
            if state.ledger.rounds > MAX_ROUNDS:
                raise PlanError(f"no answer after {MAX_ROUNDS} rounds")
            state.round, state.replies, state.under_way = tuple(asked), {}, set()
            for place, request in enumerate(state.round):
                self._service.serve(state, place, request)
            if state.num_waiting:
                return
            replies = self._close(state)

    def _arrived(self, partner: bool, piece: Piece) -> None:
        place = (partner, piece.trace)
        job = self._service.jobs.pop(place)
        state, trace = job.state, job.state.traces[job.trace]
        if job.probe is not None:
            state.ledger.probed += len(piece.tokens)
            self._service.forget(place)
            text: Sequence[int] = (*job.probe, *piece.tokens)
        else:
            trace.tokens += piece.tokens
            trace.num_latest = len(piece.tokens)
            trace.ended = piece.ended
            state.ledger.decoded += len(piece.tokens)
            state.ledger.by_partner += len(piece.tokens) if partner else 0
            text = trace.text
        told = piece.ended or job.probe is not None
        answer = self.reader(state.number, text) if told else None
        if answer is not None:
            # Only what a trace has said can be answered: a technique cannot compute, guess or smuggle in an answer.
            state.seen.add(answer)
        state.replies[job.place] = _reply(job, piece, answer)
        state.num_waiting -= 1
        if not state.num_waiting:
            self._go_on(state, self._close(state))

    def _close(self, state: QuestionState) -> tuple[Reply, ...]:
        """End a round: what it added to the longest chain, and what is live now."""
        replies = tuple(state.replies[i] for i in range(len(state.round)))
        ledger = state.ledger
        longest = max((len(r.tokens) for r in replies), default=0)
        # Of decoded tokens alone: forced ones are read in parallel. The round ends with its longest request.
        ledger.critical += longest
        ledger.critical_work += max((self._weight(state, r) * len(r.tokens) for r in replies), default=0.0)
        live = {
            number
            for number, t in state.traces.items()
            # Those that ended in this round held their cache until its end.
            if not t.dropped and (not t.ended or number in state.under_way)
        }
        if live:
            # Model and partner keep keys and values of the prompt each; traces of one model share them.
            readers = len({state.traces[number].partner for number in live})
            kept = readers * len(state.script.prompt) + kept_tokens(state.traces, live)
            ledger.peak_traces = max(ledger.peak_traces, len(live))
            ledger.peak_cache = max(ledger.peak_cache, kept)
            # Weighted by the round's length, so that the mean is over time and not over rounds.
            ledger.sum_cache += longest * kept
            ledger.sum_longest += longest
        state.under_way = set()
        return replies

    def _weight(self, state: QuestionState, reply: Reply) -> float:
        trace = state.traces.get(reply.trace)
        return self.models.partner_weight if trace is not None and trace.partner else 1.0

    def _finish(self, state: QuestionState, answer: str | None) -> None:
        if answer is not None and type(answer) is not str:  # another class compares as it likes
            raise PlanError(f"the answer is {type(answer).__name__}, and not text or None")
        if answer is not None and answer not in state.seen:
            raise PlanError(f"none of its traces answers '{answer}'")
        state.answer = answer
        for trace in state.traces.values():
            state.ledger.stopped += trace.stopped
            if not trace.dropped:
                self._service.forget((trace.partner, trace.handle))


def _reply(job: Job, piece: Piece, answer: str | None) -> Reply:
    return Reply(
        trace=job.trace,
        tokens=piece.tokens,
        logprobs=piece.logprobs,
        entropies=piece.entropies,
        ended=piece.ended,
        answer=answer,
    )


def _story(trace: Trace) -> Story:
    return Story(
        index=trace.index,
        partner=trace.partner,
        temperature=trace.temperature,
        tokens=trace.text,
        num_forced=len(trace.inherited) + len(trace.forced),
        ended=trace.ended,
    )
