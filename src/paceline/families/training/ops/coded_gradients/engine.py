"""Plays a master and its workers in virtual time. Free of torch.

Everything that the master is answered is kept, with a digest of what it wanted next, so that it can be run again alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paceline.base.counting import number_of
from paceline.families.training.api.coding import (
    Array,
    Arrival,
    Assign,
    Deliver,
    End,
    Plan,
    Request,
    Run,
    Task,
    Wait,
)
from paceline.families.training.core.apart import RefusedError, digest
from paceline.families.training.ops.coded_gradients.straggling import Straggling
from paceline.families.training.ops.coded_gradients.work import Computed, Work, bounds_of

MOST_ROUNDS = 20
"""Rounds for each job beyond which a master does not come to an end."""


@dataclass(slots=True)
class Round:
    """What happened in a round, as the judge reads it."""

    tasks: tuple[tuple[Task, ...], ...]
    begun_s: float
    ended_s: float = 0.0
    arrived: list[tuple[int, float]] = field(default_factory=list)
    """Worker and instant, in order."""


@dataclass(slots=True)
class Played:
    """What happened, as the judge reads it."""

    rounds: list[Round] = field(default_factory=list)
    delivered: list[tuple[int, float, int, Deliver]] = field(default_factory=list)
    """Rounds that had begun, instant, job, and how."""
    answers: list[Any] = field(default_factory=list)
    wanted: list[bytes] = field(default_factory=list)


class Engine:
    """One run.

    Args:
        params: Of the point.
        plan: Of the master.
        run: The master's generator.
        straggling: How long workers take.
        work: What they compute.
    """

    def __init__(
        self, params: Mapping[str, Any], plan: Plan, run: Run, straggling: Straggling, work: Work
    ) -> None:
        self.workers, self.jobs = int(params["workers"]), int(params["jobs"])
        self.plan, self.run, self.straggling, self.work = plan, run, straggling, work
        if plan.delay < 0:
            raise RefusedError(f"a delay of {number_of(plan.delay, 'round')} would be before the job")
        if min(plan.shares) < 0 or abs(sum(plan.shares) - 1) > 1e-9:
            raise RefusedError(f"its chunks are {sum(plan.shares):.6g} of all data, and must be all of them")
        self.bounds = bounds_of(plan.shares)
        self.models: list[Array] = [np.zeros(work.inputs.shape[1]) for _ in range(plan.delay + 1)]
        self.computed: dict[int, Computed] = {}
        """Of each job that has begun, its chunks' gradients."""
        self.results: dict[tuple[int, int, int], Array] = {}
        """What has arrived."""
        self.delivered: set[int] = set()
        self.now_s, self.due = 0.0, list[tuple[float, int]]()
        """Workers of the round that are yet to come, the next one last."""
        self.open = False
        self.played = Played()

    def play(self) -> Played:
        """Play until the master's generator ends.

        Raises:
            RefusedError: It wanted what it may not have.
        """
        answer: Any = None
        while True:
            try:
                request = self.run.send(answer)
            except StopIteration:
                self.played.wanted.append(b"end")
                return self.played
            if not isinstance(request, Assign | Wait | End | Deliver):
                raise RefusedError(
                    f"a master wants Assign, Wait, End or Deliver, not {type(request).__name__}"
                )
            self.played.wanted.append(digest(request))
            answer = self._answered(request)
            self.played.answers.append(answer)

    def _answered(self, request: Request) -> Any:
        if isinstance(request, Assign):
            return self._begin(request)
        if isinstance(request, Wait):
            return self._next(request)
        if isinstance(request, End):
            return self._end()
        return self._deliver(request)

    def _begin(self, request: Assign) -> float:
        number = len(self.played.rounds)
        if self.open:
            raise RefusedError(f"round {number} cannot begin before the one before it has ended")
        if number >= MOST_ROUNDS * (self.jobs + self.plan.delay):
            raise RefusedError(f"it has begun {number_of(number, 'round')} for {number_of(self.jobs, 'job')}")
        if len(request.tasks) != self.workers:
            raise RefusedError(f"it gives tasks to {len(request.tasks)} workers of {self.workers}")
        for tasks in request.tasks:
            for task in tasks:
                self._check(task)
        self.played.rounds.append(Round(tasks=request.tasks, begun_s=self.now_s))
        due = []
        for worker, tasks in enumerate(request.tasks):
            load = load_of(tasks, self.plan.shares)
            if tasks:
                due.append((self.now_s + self.straggling.duration_s(worker, number, load), worker))
        self.due, self.open = sorted(due, reverse=True), True
        return self.now_s

    def _check(self, task: Task) -> None:
        number, model = len(self.played.rounds), task.job % len(self.models)
        if not 0 <= task.job < self.jobs:
            raise RefusedError(f"there is no job {task.job}")
        if task.job > number:
            raise RefusedError(
                f"job {task.job} does not begin before round {task.job}; this is round {number}"
            )
        if task.job in self.computed:
            return
        before = task.job - len(self.models)
        if before >= 0 and before not in self.delivered:
            raise RefusedError(
                f"job {task.job} begins where job {before} leaves its model, which is not delivered"
            )
        self.computed[task.job] = Computed(self.work.gradients(task.job, self.models[model]), self.bounds)

    def _next(self, request: Wait) -> Arrival | None:
        if not self.open:
            raise RefusedError("it waits for workers, and no round has begun")
        until_s = request.until_s
        if until_s is not None and until_s < self.now_s:
            raise RefusedError(f"it would wait until {until_s:.6g} s, and it is {self.now_s:.6g} s")
        if not self.due:
            return None
        if until_s is not None and self.due[-1][0] > until_s:
            self.now_s = until_s
            return None
        self.now_s, worker = self.due.pop()
        number = len(self.played.rounds) - 1
        self.played.rounds[-1].arrived.append((worker, self.now_s))
        for place, task in enumerate(self.played.rounds[-1].tasks[worker]):
            self.results[number, worker, place] = self.computed[task.job].result(task)
        return Arrival(worker=worker, at_s=self.now_s)

    def _end(self) -> float:
        if not self.open:
            raise RefusedError("it ends a round, and none has begun")
        self.open, self.due = False, []
        self.played.rounds[-1].ended_s = self.now_s
        return self.now_s

    def _deliver(self, request: Deliver) -> None:
        if request.job in self.delivered or request.job not in self.computed:
            raise RefusedError(
                f"job {request.job} is delivered already, or nobody has computed anything for it"
            )
        missing = [r for r in request.results if r not in self.results]
        if missing:
            raise RefusedError(
                f"it uses a result of worker {missing[0][1]} in round {missing[0][0]}, which is not there"
            )
        parts = [self.results[r] for r in request.results]
        found = np.zeros(self.work.inputs.shape[1])
        for coefficient, part in zip(request.coefficients, parts, strict=True):
            found += coefficient * part
        self.delivered.add(request.job)
        self.played.delivered.append((len(self.played.rounds), self.now_s, request.job, request))
        model = request.job % len(self.models)
        self.models[model] = self.models[model] - self.work.rate * found


def load_of(tasks: tuple[Task, ...], shares: tuple[float, ...]) -> float:
    """Return the share of all data that a worker goes through; a chunk counts in every task that reads it."""
    return float(sum(shares[chunk] for task in tasks for chunk in task.chunks))
