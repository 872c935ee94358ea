"""Actions and events: what a technique that calls tools can begin, and what it is told when something has ended.

A technique is a generator for every question. It yields actions, none at all if it only wants to wait, and is sent the
next event. What it began goes on meanwhile: nothing waits for anything else unless the technique waits.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of a tool that the language model wants."""

    number: int
    depends: tuple[int, ...]
    """Steps whose results are its arguments, in this order."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Ask the language model for all steps that it can see now; they arrive one by one as they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Think:
    """Ask the language model what to do next, with all results so far before it."""

    together: bool = False
    """Whether it may name all steps whose arguments are there, instead of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call the tool of a step."""

    number: int
    arguments: tuple[int, ...]
    """Results of the steps that it depends on."""


@dataclass(frozen=True, slots=True)
class Join:
    """Ask the language model for the answer, with all results before it; it may want to plan further steps instead."""


Action = Plan | Think | Call | Join


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The planner has written a step."""

    step: Step


@dataclass(frozen=True, slots=True)
class PlanEnded:
    """The planner has written all steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """The language model has named steps, or the answer when there is nothing left to call."""

    steps: tuple[Step, ...]
    answer: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A tool has returned."""

    number: int
    result: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The language model has answered; None asks for another plan."""

    answer: int | None


Event = Planned | PlanEnded | Thought | Called | Joined
Rollout = Generator[Sequence[Action], Event, "int | None"]
"""One technique's way through a question: yields actions, is sent the next event, returns the answer."""


class ToolMethod(Protocol):
    """What a technique's factory returns."""

    def __call__(self) -> Rollout:
        """Answer one question, of which it knows nothing but what it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTask:
    """What a technique is made for: ``factory(task, **options)``, anew for every run over the questions."""

    num_steps: int
    """Most steps of a question."""
