"""Serves single requests: each becomes calls of a model, and lines in the question's ledger.

Techniques name traces by numbers that count from 0 in every question. They never say which tokens a trace is to
continue by: the question's probe, the opening of a part, what forks wrote, the question's conclusion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline.families.reasoning.language import Draw
from paceline.families.reasoning.lineage import Trace, nearest
from paceline.families.reasoning.models import Draws, Models
from paceline.families.reasoning.requests import (
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
from paceline.families.reasoning.seat import NO_TRACE, Job, Place, PlanError, Seat, Waiting, check_plain

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

    def serve(self, seat: Seat, place: int, request: Request) -> None:
        """Begin what a request asks for; its reply is there at once, or when its job has been done.

        Raises:
            PlanError: The question does not offer it.
        """
        check_plain(request, REQUESTS, "a request")
        match request:
            case Sample():
                self._sample(seat, place, request)
            case Extend():
                if seat.own(request.trace).ended:
                    raise PlanError(f"trace {request.trace} has ended and cannot go on")
                self._advance(seat, place, request.trace, request.tokens, self._stop(seat, step=request.step))
            case Branch():
                self._branch(seat, place, request)
            case Fork():
                self._fork(seat, place, request)
            case Join():
                self._join(seat, place, request)
            case Merge():
                self._merge(seat, place, request)
            case Share():
                if place not in seat.replies and all(j.place != place for j in self._jobs_of(seat)):
                    self._share(seat, request.trace)
            case Probe():
                self._probe(seat, place, request)
            case Review():
                self._review(seat, place, request)
            case Compare():
                self._compare(seat, place, request)
            case Drop():
                trace = seat.resting(request.trace, "dropped")
                trace.dropped = True
                self.forget((trace.partner, trace.handle))
                seat.replies[place] = Reply(trace=request.trace)

    @staticmethod
    def _stop(seat: Seat, *, step: bool) -> tuple[int, ...]:
        return seat.script.step_end if step else ()

    def _sample(self, seat: Seat, place: int, request: Sample) -> None:
        if not 0 <= request.index < self.task.samples:
            raise PlanError(
                f"sample {request.index} is outside of the {self.task.samples} that a question has"
            )
        if any(t.index == request.index for t in seat.traces.values()):
            raise PlanError(f"sample {request.index} has been begun before")
        key = self.draws(seat.number, request.index)
        if request.greedy and self.task.temperature > 0:  # the same trace by every index and in every order
            key = key[:2]
        temperature = 0.0 if request.greedy else self.task.temperature
        handle = self._begin(request.partner, seat.script.prompt, key, temperature)
        trace = Trace(
            handle=handle, partner=request.partner, index=request.index, key=key, temperature=temperature
        )
        seat.ledger.traces += 1
        self._advance(seat, place, seat.add(trace), request.tokens, self._stop(seat, step=request.step))

    def _begin(self, partner: bool, tokens: Sequence[int], key: tuple[int, ...], temperature: float) -> int:
        handle = self.models.get(partner).begin(tokens, Draw(key=key, temperature=temperature))
        self._open.add((partner, handle))
        return handle

    def _branch(self, seat: Seat, place: int, request: Branch) -> None:
        source = seat.resting(request.trace, "copied")
        if source.ended:
            raise PlanError(f"trace {request.trace} has ended and cannot go on")
        seat.ledger.traces += not source.text
        if request.partner != source.partner and source.merged:
            raise PlanError(f"trace {request.trace} continues a merge, which another model cannot read")
        self.models.get(request.partner)
        near = nearest(seat.traces, request.trace, partner=request.partner)
        if near is not None and near in seat.under_way:
            near = None
        if self._continue(seat, place, request.trace, near, (), partner=request.partner):
            number = len(seat.traces) - 1
            self._advance(seat, place, number, request.tokens, self._stop(seat, step=request.step))

    def _fork(self, seat: Seat, place: int, request: Fork) -> None:
        parent = seat.resting(request.trace, "copied")
        if not 0 <= request.part < seat.question.num_parts:
            raise PlanError(
                f"part {request.part} is outside of the {seat.question.num_parts} that a question has"
            )
        if request.part in parent.forked:
            raise PlanError(f"part {request.part} of trace {request.trace} has been begun before")
        opening = seat.script.openings[request.part]
        if not opening:
            raise PlanError(
                "the question's parts have no openings, by which a thread could be told what to do"
            )
        parent.forked.add(request.part)
        if self._continue(seat, place, request.trace, request.trace, opening, partner=parent.partner):
            self._advance(seat, place, len(seat.traces) - 1, None, seat.script.part_end)

    def _join(self, seat: Seat, place: int, request: Join) -> None:
        parent = seat.resting(request.trace, "copied")
        forks = self._forks(seat, request.trace, request.forks, 1)
        forced = tuple(token for fork in forks for token in (*fork.forced, *fork.tokens))
        if self._continue(seat, place, request.trace, request.trace, forced, partner=parent.partner):
            self._advance(seat, place, len(seat.traces) - 1, None)

    def _merge(self, seat: Seat, place: int, request: Merge) -> None:
        parent = seat.resting(request.trace, "copied")
        if parent.merged:
            raise PlanError(f"trace {request.trace} continues a merge and cannot be merged again")
        forks = self._forks(seat, request.trace, request.forks, 2)
        if any(fork.dropped for fork in forks):
            raise PlanError("what a dropped fork wrote cannot be merged: its cache is gone")
        written = tuple(token for fork in forks for token in (*fork.forced, *fork.tokens))
        forced = (*written, *seat.script.conclusion)
        key = (*self._copy_key(parent), MERGED)
        if self._no_room(seat, place, parent, forced):
            return
        model = self.models.get(parent.partner)
        handle = model.merge(
            parent.handle,
            [fork.handle for fork in forks],
            seat.script.conclusion,
            Draw(key=key, temperature=parent.temperature),
        )
        self._open.add((parent.partner, handle))
        seat.ledger.merged += len(written)
        seat.ledger.forced += len(seat.script.conclusion)
        number = self._add_copy(seat, request.trace, request.trace, handle, key, forced, parent.partner)
        seat.traces[number].merged = True
        self._advance(seat, place, number, None)

    def _jobs_of(self, seat: Seat) -> list[Job]:
        return [job for job in self.jobs.values() if job.seat is seat]

    def _share(self, seat: Seat, number: int) -> None:
        """Begin all traces of the round that are to see each other, which have to be begun together."""
        parent = seat.resting(number, "copied")
        asked = [
            (place, request)
            for place, request in enumerate(seat.round)
            if isinstance(request, Share) and request.trace == number
        ]
        parts = [request.part for _, request in asked]
        if parent.joined or parent.merged:
            raise PlanError(f"trace {number} has been joined or shared before, or continues a merge")
        if len(set(parts)) < len(parts) or not all(0 <= p < seat.question.num_parts for p in parts):
            raise PlanError(f"parts {parts} of the {seat.question.num_parts} that a question has, each once")
        openings = [seat.script.openings[part] for part in parts]
        if any(len(opening) != 1 for opening in openings):
            raise PlanError("the question's openings have several tokens, and cannot be shared")
        parent.joined = True
        if self._no_room(seat, asked[0][0], parent, parts):
            for place, _ in asked:
                seat.replies[place] = Reply(trace=NO_TRACE, ended=True)
            return
        copied = self._copy_key(parent)
        keys = [(*copied, SHARED, *parts, part) for part in parts]
        draws = [Draw(key=key, temperature=parent.temperature) for key in keys]
        model = self.models.get(parent.partner)
        handles = model.share(parent.handle, [opening[0] for opening in openings], draws)
        for (place, _), handle, key, opening in zip(asked, handles, keys, openings, strict=True):
            self._open.add((parent.partner, handle))
            seat.ledger.forced += len(opening)
            seat.ledger.forced_by_partner += len(opening) if parent.partner else 0
            copy = self._add_copy(seat, number, number, handle, key, opening, parent.partner)
            seat.traces[copy].shared = True
            self._advance(seat, place, copy, None)

    @staticmethod
    def _forks(seat: Seat, number: int, forks: tuple[int, ...], least: int) -> list[Trace]:
        parent = seat.traces[number]
        if parent.joined:
            raise PlanError(f"trace {number} has been joined before")
        if len(set(forks)) < least or len(set(forks)) < len(forks):
            raise PlanError(
                f"{len(forks)} forks are joined to trace {number}; {least} different ones at least"
            )
        parent.joined = True
        found = []
        for name in forks:
            fork = seat.traces.get(name)
            if fork is None or fork.parent != number or fork.index is not None:
                raise PlanError(f"trace {name} is no fork of trace {number}")
            if name in seat.under_way:
                raise PlanError(f"trace {name} is joined in the round that lets it go on")
            found.append(fork)
        return found

    def _continue(
        self,
        seat: Seat,
        place: int,
        number: int,
        near: int | None,
        forced: tuple[int, ...],
        *,
        partner: bool,
    ) -> bool:
        """Begin a trace that continues another one's text, on the cache of a near one; False where there is no room."""
        source = seat.traces[number]
        key = self._copy_key(source)
        if self._no_room(seat, place, source, forced):
            return False
        wanted = (*source.text, *forced)
        if near is None:
            handle = self._begin(partner, (*seat.script.prompt, *wanted), key, source.temperature)
            read = (*seat.script.prompt, *wanted)
            forced = wanted
        else:
            held = len(seat.traces[near].text)
            forced = read = wanted[held:]
            draw = Draw(key=key, temperature=source.temperature)
            handle = self.models.get(partner).fork(seat.traces[near].handle, forced, draw)
            self._open.add((partner, handle))
        seat.ledger.forced += len(read)
        seat.ledger.forced_by_partner += len(read) if partner else 0
        self._add_copy(seat, number, near, handle, key, forced, partner)
        return True

    @staticmethod
    def _add_copy(
        seat: Seat,
        number: int,
        near: int | None,
        handle: int,
        key: tuple[int, ...],
        forced: tuple[int, ...],
        partner: bool,
    ) -> int:
        source = seat.traces[number]
        seat.ledger.forks += 1
        return seat.add(
            Trace(
                handle=handle,
                partner=partner,
                index=None,
                key=key,
                temperature=source.temperature,
                origin=number,
                parent=near,
                inherited=() if near is None else seat.traces[near].text,
                forced=forced,
                merged=source.merged,
            )
        )

    @staticmethod
    def _copy_key(trace: Trace) -> tuple[int, ...]:
        """Return the key of a trace's next copy."""
        key = (*trace.key, len(trace.tokens), trace.num_copies)
        trace.num_copies += 1
        return key

    def _no_room(self, seat: Seat, place: int, trace: Trace, forced: Sequence[int]) -> bool:
        """Whether the context has no room for a copy; it then has its reply.

        Raises:
            PlanError: The trace has come to its own end, behind which nothing can be written.
        """
        if len(seat.script.prompt) + len(trace.text) + len(forced) < self.task.context:
            if trace.ended:
                raise PlanError("a trace that has ended cannot go on")
            return False
        seat.replies[place] = Reply(trace=NO_TRACE, ended=True)
        return True

    def _probe(self, seat: Seat, place: int, request: Probe) -> None:
        trace = seat.resting(request.trace, "copied")
        if trace.partner:
            raise PlanError(f"trace {request.trace} is the partner's and cannot be probed")
        key, probe = self._copy_key(trace), seat.script.probe
        if self._no_room(seat, place, trace, probe):
            seat.replies[place] = Reply(trace=request.trace, ended=True)
            return
        handle = self.models.model.fork(trace.handle, probe, Draw(key=key, temperature=0.0))
        self._open.add((False, handle))
        seat.ledger.forced += len(probe)
        self.models.model.advance(handle, seat.script.probe_tokens)
        self.jobs[False, handle] = Job(
            seat=seat, place=place, trace=request.trace, probe=(*trace.text, *probe)
        )
        seat.num_waiting += 1

    def _review(self, seat: Seat, place: int, request: Review) -> None:
        trace = seat.resting(request.trace, "reviewed")
        if not trace.num_latest:
            raise PlanError(f"trace {request.trace} has no step that could be reviewed")
        text = (*seat.script.prompt, *trace.text)
        before, step = text[: -trace.num_latest], text[-trace.num_latest :]
        self.models.get(True)
        seat.ledger.reviewed += len(step)
        seat.num_waiting += 1
        self.reviews.append(Waiting(seat=seat, place=place, trace=request.trace, before=before, step=step))

    def review(self) -> list[Seat]:
        """Let the partner score all steps that wait for it; return whose they are."""
        waiting, self.reviews = self.reviews, []
        found = self.models.get(True).score([(one.before, one.step) for one in waiting])
        for one, logprobs in zip(waiting, found, strict=True):
            score = math.exp(math.fsum(logprobs) / len(one.step))
            one.seat.replies[one.place] = Reply(trace=one.trace, score=score)
            one.seat.num_waiting -= 1
        return list({id(one.seat): one.seat for one in waiting}.values())

    def _compare(self, seat: Seat, place: int, request: Compare) -> None:
        if self.models.judge is None:
            raise PlanError("the point has no judge that could compare traces")
        one, other = (seat.resting(number, "compared") for number in (request.trace, request.other))
        if request.trace == request.other or one.ended or other.ended:
            raise PlanError("two traces are compared, neither of which has ended")
        for trace in (one, other):
            length = len(trace.text)
            seat.ledger.judged += max(length - trace.num_judged, 0)
            trace.num_judged = max(trace.num_judged, length)
        probability = self.models.judge.probability(seat.script.prompt, one.text, other.text)
        drawn = [t for t in (one, other) if not t.partner and t.temperature == self.task.temperature]
        if len(drawn) == 2 and one.index is not None and other.index is not None:
            indices = (one.index, other.index)
            seat.comparisons.append(Comparison(indices=indices, probability=probability))
        seat.replies[place] = Reply(trace=request.trace, score=probability)

    def _advance(
        self, seat: Seat, place: int, number: int, tokens: int | None, stop: tuple[int, ...] = ()
    ) -> None:
        if number in seat.under_way:
            raise PlanError("a trace is named twice in one round")
        if tokens is not None and tokens < 0:
            raise PlanError(f"asked for {tokens} tokens")
        if tokens == 0:
            seat.replies[place] = Reply(trace=number)
            return
        trace = seat.traces[number]
        limit = self.task.context if tokens is None else tokens
        self.models.get(trace.partner).advance(trace.handle, limit, stop)
        seat.under_way.add(number)
        seat.num_waiting += 1
        self.jobs[trace.partner, trace.handle] = Job(seat=seat, place=place, trace=number)
