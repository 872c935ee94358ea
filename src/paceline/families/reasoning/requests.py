"""What a technique asks of a model, and what it is told.

A technique is a generator for every question. It yields rounds: requests that do not wait for each other. It goes on
when all of a round's replies are there. The executor sees every request, so tokens, the longest chain of dependent
tokens and the live cache follow from what was asked; a technique reports nothing but its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Begin one of the question's traces."""

    index: int
    """Which one, from 0 up to the task's number of samples; equal indices are equal traces in all techniques."""
    tokens: int | None = None
    """Stop after this many; None goes on to the end, 0 opens the trace and decodes nothing."""
    stop: tuple[int, ...] = ()
    """Stop after any of these tokens as well."""
    temperature: float | None = None
    """None takes the task's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extend:
    """Let a trace that has not ended go on."""

    trace: int
    tokens: int | None = None
    stop: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Begin another trace that continues a copy of this one by forced tokens; its cache is shared up to there."""

    trace: int
    forced: tuple[int, ...]
    tokens: int | None = None
    """As of a sample, 0 included."""
    stop: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Continue a copy of a trace by forced tokens, read what comes, and forget the copy."""

    trace: int
    forced: tuple[int, ...]
    tokens: int
    temperature: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Give up a trace: its cache is free, its tokens stay paid for. There is no reply to wait for."""

    trace: int


Request = Sample | Extend | Fork | Probe | Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one request gave."""

    trace: int
    """Handle of the trace, for later requests; a probe's is its parent's."""
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

    key: int
    """Names the question; it says nothing about its content."""
    samples: int
    """Traces that may be begun."""
    parts: tuple[tuple[int, ...], ...]
    """Tokens with which each part begins that can be worked out by itself; one part at least."""
    part_end: tuple[int, ...]
    """Tokens that end a part."""
    probe: tuple[int, ...]
    """Forced tokens after which a trace names its answer."""
    probe_tokens: int
    """Most tokens of such an answer."""


class Method(Protocol):
    """What a technique's factory returns."""

    def __call__(self, question: Question) -> Plan:
        """Answer one question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a technique is made for: ``factory(task, **options)``."""

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
    """Tokens that were forced into probes and forks: read, and not decoded."""
    critical: int = 0
    """Tokens on the longest chain of requests that wait for each other."""
    rounds: int = 0
    traces: int = 0
    """Samples that were begun."""
    forks: int = 0
    peak_traces: int = 0
    """Most traces that were live at the end of a round."""
    peak_cache: int = 0
    """Most tokens whose keys and values had to be kept: the prompt once, and each live trace's own."""
    dropped: int = 0
    """Samples that did not come to their ends."""

    @property
    def total(self) -> int:
        """All tokens that the model decoded for the question."""
        return self.decoded + self.probed


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One answered question."""

    key: int
    answer: str | None
    ledger: Ledger
    traces: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Decoded tokens of each sample, by index."""


Reader = Callable[[Sequence[int]], "str | None"]
"""Reads the answer of a trace from its decoded tokens."""
