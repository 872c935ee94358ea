"""Runs a technique's rollout on one question: begins what it asks for, and tells it what has ended, in order of time.

Time is real when it is measured: what is due later is slept for, and what the technique itself takes passes as well.
The same rollout runs again without sleeping, on a clock that jumps from event to event.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paceline.families.reasoning.api.tool_calls import (
    Action,
    Call,
    Called,
    Event,
    Join,
    Joined,
    Plan,
    PlanEnded,
    Planned,
    Step,
    Think,
    Thought,
    ToolMethod,
)
from paceline.families.reasoning.core.questions.refusals import PlanError, check_plain
from paceline.families.reasoning.ops.call_tools.task_graph import Times, Work

MAX_EVENTS = 100_000


class Clock:
    """A clock that jumps to what is due next."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        """Return the time."""
        return self._now_s

    def wait(self, until_s: float) -> None:
        """Jump forward."""
        self._now_s = max(self._now_s, until_s)


class RealClock:
    """The host's clock."""

    def __init__(self, now_s: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._read, self._sleep, self._began_s = now_s, sleep, now_s()

    def now_s(self) -> float:
        """Return seconds since the beginning."""
        return self._read() - self._began_s

    def wait(self, until_s: float) -> None:
        """Sleep until a time."""
        left = until_s - self.now_s()
        if left > 0:
            self._sleep(left)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of one question."""

    answer: int | None = None
    elapsed_s: float = 0.0
    invocations: int = 0
    """Of the language model."""
    written: int = 0
    """Steps that it wrote, thoughts and plans together."""
    calls: int = 0
    most_at_once: int = 0
    """Calls."""


@dataclass(slots=True)
class _Run:
    work: Work
    times: Times
    clock: Clock | RealClock
    outcome: Outcome = field(default_factory=Outcome)
    due: list[tuple[float, int, Event]] = field(default_factory=list)
    places: itertools.count[int] = field(default_factory=itertools.count)
    told: set[int] = field(default_factory=set)
    """Steps that the technique knows of."""
    called: set[int] = field(default_factory=set)
    results: dict[int, int] = field(default_factory=dict)
    plans: int = 0
    answers: set[int] = field(default_factory=set)

    def after(self, seconds: float, event: Event) -> None:
        heapq.heappush(self.due, (self.clock.now_s() + seconds, next(self.places), event))

    def begin(self, action: Action) -> None:
        check_plain(action, (Plan, Think, Call, Join), "an action")
        match action:
            case Plan():
                self._plan()
            case Think():
                self._think(action)
            case Call():
                self._call(action)
            case Join():
                self._join()

    def _plan(self) -> None:
        self.outcome.invocations += 1
        if self.plans >= len(self.work.plans):
            raise PlanError("there is nothing left to plan")
        if any(s.number not in self.results for plan in self.work.plans[: self.plans] for s in plan):
            raise PlanError("the next plan needs all results of the one before")
        steps = self.work.plans[self.plans]
        self.plans += 1
        for place, step in enumerate(steps, 1):
            self.after(self.times.first_s + place * self.times.step_s, Planned(step=step))
        self.outcome.written += len(steps)
        self.after(self.times.first_s + len(steps) * self.times.step_s, PlanEnded())

    def _think(self, asked: Think) -> None:
        self.outcome.invocations += 1
        if self.called != self.results.keys():
            raise PlanError("a thought needs the results of all calls before it")
        left = [s for s in self.work.steps if s.number not in self.called]
        first, *_ = self.work.plans
        # What can be planned only when others have their results cannot be thought of before, either.
        known = left if all(s.number in self.results for s in first) else [s for s in left if s in first]
        ready = [s for s in known if all(d in self.results for d in s.depends)]
        steps = tuple(ready if asked.together else ready[:1])
        answer = None if left else self.work.answer(self.results)
        self.outcome.written += len(steps)
        self.after(self.times.first_s + len(steps) * self.times.step_s, Thought(steps=steps, answer=answer))

    def _call(self, asked: Call) -> None:
        number = asked.number
        if number not in self.told:
            raise PlanError(f"step {number} has not been named to it")
        if number in self.called:
            raise PlanError(f"step {number} has been called before")
        step = self._step(number)
        if asked.arguments != tuple(self.results.get(d) for d in step.depends):
            raise PlanError(f"arguments of step {number} are not the results of {step.depends}")
        self.called.add(number)
        self.outcome.calls += 1
        at_once = len(self.called) - len(self.results)
        self.outcome.most_at_once = max(self.outcome.most_at_once, at_once)
        result = self.work.result(number, asked.arguments)
        self.after(self.work.durations_s[number], Called(number=number, result=result))

    def _join(self) -> None:
        self.outcome.invocations += 1
        if self.called != self.results.keys():
            raise PlanError("an answer needs the results of all calls before it")
        whole = len(self.results) == len(self.work.steps)
        self.after(self.times.first_s, Joined(answer=self.work.answer(self.results) if whole else None))

    def _step(self, number: int) -> Step:
        return next(s for s in self.work.steps if s.number == number)

    def next_event(self) -> Event:
        if not self.due:
            raise PlanError("it waits for nothing")
        at, _, event = heapq.heappop(self.due)
        self.clock.wait(at)
        match event:
            case Planned():
                self.told.add(event.step.number)
            case Thought():
                self.told |= {step.number for step in event.steps}
                self.answers |= {event.answer} - {None}  # type: ignore[arg-type]  # without None
            case Called():
                self.results[event.number] = event.result
            case Joined():
                self.answers |= {event.answer} - {None}  # type: ignore[arg-type]  # without None
            case PlanEnded():
                pass
        return event


def run_rollout(work: Work, times: Times, method: ToolMethod, clock: Clock | RealClock) -> Outcome:
    """Answer one question.

    Raises:
        PlanError: The technique asked for what cannot be, waits for nothing, or goes on without end.
    """
    run = _Run(work, times, clock)
    rollout = method()
    asked: Sequence[Action] = ()
    try:
        asked = next(rollout)
        for _ in range(MAX_EVENTS):
            for action in asked:
                run.begin(action)
            asked = rollout.send(run.next_event())
        raise PlanError(f"no answer after {MAX_EVENTS} events")
    except StopIteration as stop:
        answer = stop.value
    if answer is not None and (type(answer) is not int or answer not in run.answers):
        raise PlanError(f"the language model never answered '{answer}'")
    run.outcome.answer = answer
    run.outcome.elapsed_s = run.clock.now_s()
    return run.outcome
