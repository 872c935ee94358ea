"""Serves single requests: each becomes calls of a model, and lines in the question's ledger.

Techniques name traces by numbers that count from 0 in every question. They never say which tokens a trace is to
continue by: the question's probe, the opening of a part, what forks wrote, the question's conclusion.

One class with a method for each kind of request: all of them write the same ledger and place the same calls, and what
one kind may assume of the ledger is what the others keep.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline.base.counting import number_of
from paceline.families.reasoning.api.requests import (
    Branch,
    Compare,
    Comparison,
    Drop,
    Extend,
    Fork,
    Join,
    Merge,
    Probe,
    Reply,
    Request,
    Review,
    Sample,
    Share,
    Task,
)
from paceline.families.reasoning.core.language import Draw
from paceline.families.reasoning.core.questions.lineage import Trace, nearest
from paceline.families.reasoning.core.questions.models import Draws, Models
from paceline.families.reasoning.core.questions.refusals import PlanError, check_plain
from paceline.families.reasoning.core.questions.state import NO_TRACE, Job, Place, QuestionState, Waiting

REQUESTS = (Sample, Extend, Branch, Fork, Join, Merge, Share, Probe, Review, Compare, Drop)
MERGED = -1
"""Last number of the keys of merges, whose tokens before the first decoded one could be a join's."""
SHARED = -2
"""In the keys of traces that see each other, before their parts."""


class Service:
    """Begins, copies and advances traces for all questions of a run."""

    def __init__(self, models: Models, task: Task, draws: Draws) -> None:
        self.models, self.task, self.draws = models, task, draws
        self.jobs: dict[Place, Job] = {}
        """What is under way."""
        self.reviews: list[Waiting] = []
        """Steps that are scored together, by ``review``."""
        self._open: set[Place] = set()
        """Traces that have to be dropped, however the run ends."""

    def forget(self, place: Place) -> None:
        """Drop a model's trace."""
        self._open.discard(place)
        self.models.get(place[0]).drop(place[1])

    def forget_all(self) -> None:
        """Drop everything that is open."""
        self.jobs.clear()
        self.reviews.clear()
        for place in tuple(self._open):
            self.forget(place)

    def serve(self, state: QuestionState, place: int, request: Request) -> None:
        """Begin what a request asks for; its reply is there at once, or when its job has been done.

        Raises:
            PlanError: The question does not offer it.
        """
        check_plain(request, REQUESTS, "a request")
        match request:
            case Sample():
                self._sample(state, place, request)
            case Extend():
                if state.own(request.trace).ended:
                    raise PlanError(f"trace {request.trace} has ended and cannot go on")
                self._advance(
                    state, place, request.trace, request.tokens, self._stop(state, step=request.step)
                )
            case Branch():
                self._branch(state, place, request)
            case Fork():
                self._fork(state, place, request)
            case Join():
                self._join(state, place, request)
            case Merge():
                self._merge(state, place, request)
            case Share():
                # The first share of a round begins all that name its trace; the others find themselves begun.
                if place not in state.replies and all(j.place != place for j in self._jobs_of(state)):
                    self._share(state, request.trace)
            case Probe():
                self._probe(state, place, request)
            case Review():
                self._review(state, place, request)
            case Compare():
                self._compare(state, place, request)
            case Drop():
                trace = state.resting(request.trace, "dropped")
                trace.dropped = True
                self.forget((trace.partner, trace.handle))
                state.replies[place] = Reply(trace=request.trace)

    @staticmethod
    def _stop(state: QuestionState, *, step: bool) -> tuple[int, ...]:
        return state.script.step_end if step else ()

    def _sample(self, state: QuestionState, place: int, request: Sample) -> None:
        if not 0 <= request.index < self.task.samples:
            raise PlanError(
                f"sample {request.index} is outside of the {self.task.samples} that a question has"
            )
        # Twice the same index would be one draw that votes twice.
        if any(t.index == request.index for t in state.traces.values()):
            raise PlanError(f"sample {request.index} has been begun before")
        key = self.draws(state.number, request.index)
        if request.greedy and self.task.temperature > 0:  # the same trace by every index and in every order
            key = key[:2]
        temperature = 0.0 if request.greedy else self.task.temperature
        handle = self._begin(request.partner, state.script.prompt, key, temperature)
        trace = Trace(
            handle=handle, partner=request.partner, index=request.index, key=key, temperature=temperature
        )
        state.ledger.traces += 1
        self._advance(state, place, state.add(trace), request.tokens, self._stop(state, step=request.step))

    def _begin(self, partner: bool, tokens: Sequence[int], key: tuple[int, ...], temperature: float) -> int:
        handle = self.models.get(partner).begin(tokens, Draw(key=key, temperature=temperature))
        self._open.add((partner, handle))
        return handle

    def _branch(self, state: QuestionState, place: int, request: Branch) -> None:
        source = state.resting(request.trace, "copied")
        if source.ended:
            raise PlanError(f"trace {request.trace} has ended and cannot go on")
        # A copy of an empty trace shares nothing with it: it is a sample of its own.
        state.ledger.traces += not source.text
        if request.partner != source.partner and source.merged:
            raise PlanError(f"trace {request.trace} continues a merge, which another model cannot read")
        self.models.get(request.partner)
        near = nearest(state.traces, request.trace, partner=request.partner)
        # A trace that decodes cannot be copied: the text is read anew instead, and counted as forced.
        if near is not None and near in state.under_way:
            near = None
        if self._continue(state, place, request.trace, near, (), partner=request.partner):
            number = len(state.traces) - 1
            self._advance(state, place, number, request.tokens, self._stop(state, step=request.step))

    def _fork(self, state: QuestionState, place: int, request: Fork) -> None:
        parent = state.resting(request.trace, "copied")
        if not 0 <= request.part < state.question.num_parts:
            raise PlanError(
                f"part {request.part} is outside of the {state.question.num_parts} that a question has"
            )
        if request.part in parent.forked:
            raise PlanError(f"part {request.part} of trace {request.trace} has been begun before")
        opening = state.script.openings[request.part]
        if not opening:
            raise PlanError(
                "the question's parts have no openings, by which a thread could be told what to do"
            )
        parent.forked.add(request.part)
        if self._continue(state, place, request.trace, request.trace, opening, partner=parent.partner):
            self._advance(state, place, len(state.traces) - 1, None, state.script.part_end)

    def _join(self, state: QuestionState, place: int, request: Join) -> None:
        parent = state.resting(request.trace, "copied")
        forks = self._forks(state, request.trace, request.forks, 1)
        forced = tuple(token for fork in forks for token in (*fork.forced, *fork.tokens))
        if self._continue(state, place, request.trace, request.trace, forced, partner=parent.partner):
            self._advance(state, place, len(state.traces) - 1, None)

    def _merge(self, state: QuestionState, place: int, request: Merge) -> None:
        parent = state.resting(request.trace, "copied")
        if parent.merged:
            raise PlanError(f"trace {request.trace} continues a merge and cannot be merged again")
        forks = self._forks(state, request.trace, request.forks, 2)
        # Unlike a join, which reads texts, a merge needs their keys and values.
        if any(fork.dropped for fork in forks):
            raise PlanError("what a dropped fork wrote cannot be merged: its cache is gone")
        written = tuple(token for fork in forks for token in (*fork.forced, *fork.tokens))
        forced = (*written, *state.script.conclusion)
        key = (*self._copy_key(parent), MERGED)
        if self._no_room(state, place, parent, forced):
            return
        model = self.models.get(parent.partner)
        handle = model.merge(
            parent.handle,
            [fork.handle for fork in forks],
            state.script.conclusion,
            Draw(key=key, temperature=parent.temperature),
        )
        self._open.add((parent.partner, handle))
        state.ledger.merged += len(written)
        state.ledger.forced += len(state.script.conclusion)
        number = self._add_copy(state, request.trace, request.trace, handle, key, forced, parent.partner)
        state.traces[number].merged = True
        self._advance(state, place, number, None)

    def _jobs_of(self, state: QuestionState) -> list[Job]:
        return [job for job in self.jobs.values() if job.state is state]

    def _share(self, state: QuestionState, number: int) -> None:
        """Begin all traces of the round that are to see each other, which have to be begun together."""
        parent = state.resting(number, "copied")
        asked = [
            (place, request)
            for place, request in enumerate(state.round)
            if isinstance(request, Share) and request.trace == number
        ]
        parts = [request.part for _, request in asked]
        if parent.joined or parent.merged:
            raise PlanError(f"trace {number} has been joined or shared before, or continues a merge")
        if len(set(parts)) < len(parts) or not all(0 <= p < state.question.num_parts for p in parts):
            raise PlanError(f"parts {parts} of the {state.question.num_parts} that a question has, each once")
        openings = [state.script.openings[part] for part in parts]
        if any(len(opening) != 1 for opening in openings):
            raise PlanError("the question's openings have several tokens, and cannot be shared")
        parent.joined = True
        if self._no_room(state, asked[0][0], parent, parts):
            for place, _ in asked:
                state.replies[place] = Reply(trace=NO_TRACE, ended=True)
            return
        copied = self._copy_key(parent)
        # All parts are in each key: what a trace sees, and so what it decodes, depends on its company.
        keys = [(*copied, SHARED, *parts, part) for part in parts]
        draws = [Draw(key=key, temperature=parent.temperature) for key in keys]
        model = self.models.get(parent.partner)
        handles = model.share(parent.handle, [opening[0] for opening in openings], draws)
        for (place, _), handle, key, opening in zip(asked, handles, keys, openings, strict=True):
            self._open.add((parent.partner, handle))
            state.ledger.forced += len(opening)
            state.ledger.forced_by_partner += len(opening) if parent.partner else 0
            copy = self._add_copy(state, number, number, handle, key, opening, parent.partner)
            state.traces[copy].shared = True
            self._advance(state, place, copy, None)

    @staticmethod
    def _forks(state: QuestionState, number: int, forks: tuple[int, ...], least: int) -> list[Trace]:
        parent = state.traces[number]
        if parent.joined:
            raise PlanError(f"trace {number} has been joined before")
        if len(set(forks)) < least or len(set(forks)) < len(forks):
            raise PlanError(
                f"{len(forks)} forks are joined to trace {number}; {least} different ones at least"
            )
        parent.joined = True
        found = []
        for name in forks:
            fork = state.traces.get(name)
            if fork is None or fork.parent != number or fork.index is not None:
                raise PlanError(f"trace {name} is no fork of trace {number}")
            if name in state.under_way:
                raise PlanError(f"trace {name} is joined in the round that lets it go on")
            found.append(fork)
        return found

    def _continue(
        self,
        state: QuestionState,
        place: int,
        number: int,
        near: int | None,
        forced: tuple[int, ...],
        *,
        partner: bool,
    ) -> bool:
        """Begin a trace that continues another one's text, on the cache of a near one; False where there is no room."""
        source = state.traces[number]
        key = self._copy_key(source)
        if self._no_room(state, place, source, forced):
            return False
        wanted = (*source.text, *forced)
        if near is None:
            handle = self._begin(partner, (*state.script.prompt, *wanted), key, source.temperature)
            read = (*state.script.prompt, *wanted)
            forced = wanted
        else:
            held = len(state.traces[near].text)
            # Only what the near one has not read: with the other model's steps in between, those.
            forced = read = wanted[held:]
            draw = Draw(key=key, temperature=source.temperature)
            handle = self.models.get(partner).fork(state.traces[near].handle, forced, draw)
            self._open.add((partner, handle))
        state.ledger.forced += len(read)
        state.ledger.forced_by_partner += len(read) if partner else 0
        self._add_copy(state, number, near, handle, key, forced, partner)
        return True

    @staticmethod
    def _add_copy(
        state: QuestionState,
        number: int,
        near: int | None,
        handle: int,
        key: tuple[int, ...],
        forced: tuple[int, ...],
        partner: bool,
    ) -> int:
        source = state.traces[number]
        state.ledger.forks += 1
        return state.add(
            Trace(
                handle=handle,
                partner=partner,
                index=None,
                key=key,
                temperature=source.temperature,
                origin=number,
                parent=near,
                inherited=() if near is None else state.traces[near].text,
                forced=forced,
                merged=source.merged,
            )
        )

    @staticmethod
    def _copy_key(trace: Trace) -> tuple[int, ...]:
        """Return the key of a trace's next copy."""
        # By how far it has come and which copy this is: the same plan makes the same draws in every run.
        key = (*trace.key, len(trace.tokens), trace.num_copies)
        trace.num_copies += 1
        return key

    def _no_room(self, state: QuestionState, place: int, trace: Trace, forced: Sequence[int]) -> bool:
        """Whether the context has no room for a copy; it then has its reply.

        Raises:
            PlanError: The trace has come to its own end, behind which nothing can be written.
        """
        # Less than the context: behind what is forced one token at least has to fit.
        if len(state.script.prompt) + len(trace.text) + len(forced) < self.task.context:
            if trace.ended:
                raise PlanError("a trace that has ended cannot go on")
            return False
        state.replies[place] = Reply(trace=NO_TRACE, ended=True)
        return True

    def _probe(self, state: QuestionState, place: int, request: Probe) -> None:
        trace = state.resting(request.trace, "copied")
        if trace.partner:
            raise PlanError(f"trace {request.trace} is the partner's and cannot be probed")
        key, probe = self._copy_key(trace), state.script.probe
        if self._no_room(state, place, trace, probe):
            state.replies[place] = Reply(trace=request.trace, ended=True)
            return
        # A copy, so that a probe leaves no token in the trace; at temperature 0 it asks for its belief and not for a
        # draw of it.
        handle = self.models.model.fork(trace.handle, probe, Draw(key=key, temperature=0.0))
        self._open.add((False, handle))
        state.ledger.forced += len(probe)
        self.models.model.advance(handle, state.script.probe_tokens)
        self.jobs[False, handle] = Job(
            state=state, place=place, trace=request.trace, probe=(*trace.text, *probe)
        )
        state.num_waiting += 1

    def _review(self, state: QuestionState, place: int, request: Review) -> None:
        trace = state.resting(request.trace, "reviewed")
        if not trace.num_latest:
            raise PlanError(f"trace {request.trace} has no step that could be reviewed")
        text = (*state.script.prompt, *trace.text)
        before, step = text[: -trace.num_latest], text[-trace.num_latest :]
        self.models.get(True)
        state.ledger.reviewed += len(step)
        state.num_waiting += 1
        self.reviews.append(Waiting(state=state, place=place, trace=request.trace, before=before, step=step))

    def review(self) -> list[QuestionState]:
        """Let the partner score all steps that wait for it; return whose they are."""
        waiting, self.reviews = self.reviews, []
        found = self.models.get(True).score([(one.before, one.step) for one in waiting])
        for one, logprobs in zip(waiting, found, strict=True):
            # A geometric mean, so that long steps are not worse for being long.
            score = math.exp(math.fsum(logprobs) / len(one.step))
            one.state.replies[one.place] = Reply(trace=one.trace, score=score)
            one.state.num_waiting -= 1
        return list({id(one.state): one.state for one in waiting}.values())

    def _compare(self, state: QuestionState, place: int, request: Compare) -> None:
        if self.models.judge is None:
            raise PlanError("the point has no judge that could compare traces")
        one, other = (state.resting(number, "compared") for number in (request.trace, request.other))
        if request.trace == request.other or one.ended or other.ended:
            raise PlanError("two traces are compared, neither of which has ended")
        for trace in (one, other):
            length = len(trace.text)
            # A judge with a cache reads each token once, however many others it compares the trace with.
            state.ledger.judged += max(length - trace.num_judged, 0)
            trace.num_judged = max(trace.num_judged, length)
        probability = self.models.judge.probability(state.script.prompt, one.text, other.text)
        drawn = [t for t in (one, other) if not t.partner and t.temperature == self.task.temperature]
        if len(drawn) == 2 and one.index is not None and other.index is not None:
            indices = (one.index, other.index)
            state.comparisons.append(Comparison(indices=indices, probability=probability))
        state.replies[place] = Reply(trace=request.trace, score=probability)

    def _advance(
        self, state: QuestionState, place: int, number: int, tokens: int | None, stop: tuple[int, ...] = ()
    ) -> None:
        if number in state.under_way:
            raise PlanError("a trace is named twice in one round")
        if tokens is not None and tokens < 0:
            raise PlanError(f"asked for {number_of(tokens, 'token')}")
        # Opened and nothing more: no job, and so nothing on the critical path.
        if tokens == 0:
            state.replies[place] = Reply(trace=number)
            return
        trace = state.traces[number]
        limit = self.task.context if tokens is None else tokens
        self.models.get(trace.partner).advance(trace.handle, limit, stop)
        state.under_way.add(number)
        state.num_waiting += 1
        self.jobs[trace.partner, trace.handle] = Job(state=state, place=place, trace=number)
