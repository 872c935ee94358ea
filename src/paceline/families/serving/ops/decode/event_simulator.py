"""Plays what a decoder asks for in virtual time: one drafter, some copies of the target. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from paceline.base.counting import number_of
from paceline.families.serving.api.speculating import CHECK, DRAFT, Given, Job
from paceline.families.serving.core.engine.core import RefusedStepError
from paceline.families.serving.ops.decode.chain import Chain

MOST_JOBS = 200_000


@dataclass(slots=True, kw_only=True)
class Played:
    """A job as it was played; nodes are those of ``edges``."""

    kind: str
    begin: int
    """The prefix."""
    end: int
    """The prefix with all drafts."""
    begin_s: float
    end_s: float
    """When its device came free."""
    cancelled_s: float | None = None


@dataclass(slots=True, kw_only=True)
class DecodingLog:
    """Everything that happened; whoever judges needs nothing else."""

    edges: list[tuple[int, int]] = field(default_factory=list)
    """Of every prefix but the empty one, which is 0: the prefix before, and the last token."""
    jobs: list[Played] = field(default_factory=list)
    delivered: list[tuple[int, float]] = field(default_factory=list)
    """Tokens handed out, and when."""


class EventSimulator:
    """The simulator of one answer.

    Args:
        given: What there is.
        chain: What target and drafter say.
    """

    def __init__(self, given: Given, chain: Chain) -> None:
        self._given, self._chain = given, chain
        self._now_s = 0.0
        self._free = given.servers
        self._drafter_free = True
        self._ends: list[tuple[float, int]] = []
        self._asked: list[Job] = []
        self._running: dict[Job, int] = {}
        self._told = {0}
        self._log = DecodingLog()

    @property
    def given(self) -> Given:
        """Return what there is."""
        return self._given

    @property
    def now_s(self) -> float:
        """Return the virtual time."""
        return self._now_s

    def free_servers(self) -> int:
        """Return how many copies of the target compute nothing."""
        return self._free

    def drafter_free(self) -> bool:
        """Return whether the drafter computes nothing."""
        return self._drafter_free

    def draft(self, prefix: Sequence[int]) -> Job:
        """Let the drafter say the token behind a prefix."""
        if not self._drafter_free:
            raise RefusedStepError("the drafter is busy: see drafter_free()")
        self._drafter_free = False
        job = Job(kind=DRAFT, prefix=tuple(prefix))
        return self._begin(job, self._given.drafter_s)

    def check(self, prefix: Sequence[int], drafts: Sequence[int] = ()) -> Job:
        """Let a copy of the target say the tokens behind a prefix and behind each draft."""
        if self._free < 1:
            raise RefusedStepError(
                f"all {number_of(self._given.servers, 'copy')} of the target are busy: see free_servers()"
            )
        self._free -= 1
        job = Job(kind=CHECK, prefix=tuple(prefix), drafts=tuple(drafts))
        return self._begin(job, self._given.target_s * (1.0 + self._given.growth * len(job.drafts)))

    def _begin(self, job: Job, seconds: float) -> Job:
        if len(self._asked) >= MOST_JOBS:
            raise RefusedStepError(f"it asked for more than {MOST_JOBS} computations for one answer")
        begin = self._walk(0, job.prefix)
        played = Played(
            kind=job.kind,
            begin=begin,
            end=self._walk(begin, job.drafts),
            begin_s=self._now_s,
            end_s=self._now_s + seconds,
        )
        number = len(self._asked)
        self._asked.append(job)
        self._log.jobs.append(played)
        self._running[job] = number
        heappush(self._ends, (played.end_s, number))
        return job

    def _walk(self, node: int, tokens: Sequence[int]) -> int:
        for token in tokens:
            node = self._chain.child(node, token)
            if node not in self._told:
                place = self._chain.depth(node) - 1
                raise RefusedStepError(f"nobody has told it token {place} of the prefix or of the drafts")
        return node

    def cancel(self, job: Job) -> None:
        """Give a job up."""
        number = self._running.pop(job, None)
        if number is None:
            return
        played = self._log.jobs[number]
        played.cancelled_s = self._now_s
        if self._given.interruptible:
            played.end_s = self._now_s
            self._release(job)

    def _release(self, job: Job) -> None:
        if job.kind == DRAFT:
            self._drafter_free = True
        else:
            self._free += 1

    def wait(self) -> Job:
        """Let time pass to the next end of a job, or of a cancelled one whose device comes free, and return it."""
        while self._ends:
            end_s, number = heappop(self._ends)
            job, played = self._asked[number], self._log.jobs[number]
            if played.cancelled_s is not None and self._given.interruptible:
                continue
            self._now_s = end_s
            self._release(job)
            if self._running.pop(job, None) is not None:
                job.told = self._tell(job.kind, played)
            return job
        raise RefusedStepError("it waits, and nothing is computed")

    def _tell(self, kind: str, played: Played) -> tuple[int, ...]:
        """Return what a job says, and know that it was said."""
        chain = self._chain
        if kind == DRAFT:
            behind, tokens = [played.begin], [chain.drafter(played.begin)]
        else:
            behind = [played.end]
            while behind[-1] != played.begin:
                behind.append(chain.edges[behind[-1] - 1][0])
            behind.reverse()
            tokens = [chain.target(node) for node in behind]
        self._told.update(chain.child(node, token) for node, token in zip(behind, tokens, strict=True))
        return tuple(tokens)

    def deliver(self, tokens: Sequence[int]) -> None:
        """Hand out the answer's next tokens, now."""
        self._log.delivered.extend((int(token), self._now_s) for token in tokens)

    def log(self) -> DecodingLog:
        """Return what happened."""
        self._log.edges = list(self._chain.edges)
        return self._log
