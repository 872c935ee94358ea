"""What a technique asks of a model, and what it is told.

A technique is a generator for every question. It yields rounds: requests that do not wait for each other. It goes on
when all of a round's replies are there. The executor sees every request, so tokens, the longest chain of dependent
tokens and the live cache follow from what was asked; a technique reports nothing but its answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Begin one of the question's traces."""

    index: int
    """Which one, from 0 up to the task's number of samples; equal indices are equal traces in all techniques."""
    tokens: int | None = None
    """Stop after this many; None goes on to the end, 0 opens the trace and decodes nothing."""
    greedy: bool = False
    """Always take the likeliest token, instead of drawing at the task's temperature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extend:
    """Let a trace that has not ended go on."""

    trace: int
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Begin another trace that continues a copy of this one by the opening of a part, and goes on to the part's end."""

    trace: int
    part: int
    """Which of the question's parts; each one once from a trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Begin another trace that continues a copy of this one by what forks of it wrote, and goes on to the end.

    What they wrote is forced, in the order in which they are named. They may have been dropped. Once from a trace.
    """

    trace: int
    forks: tuple[int, ...]
    """At least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Let a copy of a trace name its answer at once, by its likeliest tokens, and forget the copy."""

    trace: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Give up a trace: its cache is free, its tokens stay paid for. There is no reply to wait for."""

    trace: int


Request = Sample | Extend | Fork | Join | Probe | Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one request gave."""

    trace: int
    """The trace's number in its question, for later requests; a probe's is its parent's."""
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    entropies: tuple[float, ...] = ()
    ended: bool = False
    answer: str | None = None
    """What the whole trace, or a probe, answers; None while it has not ended or where it cannot be read."""


Round = Sequence[Request]
Plan = Generator[Round, tuple[Reply, ...], "str | None"]
"""Yields rounds, is sent their replies in the same order, returns its answer; None when it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a technique sees of a problem."""

    number: int
    """Its place in the launch, in an order that says nothing of its content."""
    samples: int
    """Traces that may be begun."""
    num_parts: int
    """Parts that can be worked out apart from each other; one at least."""


class Method(Protocol):
    """What a technique's factory returns."""

    def __call__(self, question: Question) -> Plan:
        """Answer one question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a technique is made for: ``factory(task, **options)``, anew for every run over the questions."""

    samples: int
    temperature: float
    context: int
    """Most tokens of a trace, its prompt included."""


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What one question cost, counted by the executor."""

    decoded: int = 0
    """Tokens of samples."""
    probed: int = 0
    """Tokens of probes."""
    forced: int = 0
    """Tokens that were forced into probes, forks and joins: read, and not decoded."""
    critical: int = 0
    """Sum over rounds of the longest request: a round waits for all of the one before."""
    rounds: int = 0
    traces: int = 0
    """Samples that were begun."""
    forks: int = 0
    """Forks and joins."""
    peak_traces: int = 0
    """Most traces that were live at the end of a round."""
    peak_cache: int = 0
    """Most tokens whose keys and values had to be kept at the end of a round: the prompt, and what live traces hold,
    beginnings that they share counted once."""
    stopped: int = 0
    """Samples that did not come to their ends."""

    @property
    def total(self) -> int:
        """All tokens that the model decoded for the question."""
        return self.decoded + self.probed


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One trace as it was left."""

    index: int | None
    """None of forks and joins."""
    temperature: float
    tokens: tuple[int, ...]
    """All after the prompt, forced ones included."""
    num_forced: int
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One answered question."""

    number: int
    answer: str | None
    ledger: Ledger
    stories: tuple[Story, ...] = ()
    """Its traces, in the order in which they were begun."""


class OptionError(ValueError):
    """An option of a technique has a value that makes no sense; its text is the reason in the record."""


def require(name: str, value: float, *, least: float, most: float = math.inf) -> None:
    """Refuse an option's value that is out of range.

    Raises:
        OptionError: It is.
    """
    if not least <= value <= most:
        above = "" if most == math.inf else f" to {most:g}"
        raise OptionError(f"{name} is {value:g}; {least:g}{above or ' or more'}")


Reader = Callable[[Sequence[int]], "str | None"]
"""Reads the answer of a trace from its tokens after the prompt."""
