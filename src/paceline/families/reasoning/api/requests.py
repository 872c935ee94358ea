"""Requests and replies: what a technique asks of a model, and what it is told.

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
    step: bool = False
    """Stop at the end of a step of reasoning, if that comes earlier."""
    partner: bool = False
    """Let the point's partner decode it: another model, as a rule a larger one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extend:
    """Let a trace that has not ended go on."""

    trace: int
    tokens: int | None = None
    step: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Begin another trace that continues a copy of this one with nothing forced; each copy draws its own tokens.

    Between the model and its partner a copy carries the text over; what the receiver has already read of it, in this
    trace or in one that this trace continues, is not read again.
    """

    trace: int
    tokens: int | None = None
    step: bool = True
    partner: bool = False


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
class Merge:
    """Begin another trace that continues a copy of this one by what forks of it wrote, nothing of which is read again.

    Their keys and values are put behind each other as they are: every fork keeps the positions at which it was
    written, so that all of them begin at the same one, and what follows the longest comes next. The question's
    conclusion is forced behind them. Once from a trace that is itself no merge.
    """

    trace: int
    forks: tuple[int, ...]
    """At least two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Begin another trace that continues a copy of this one by the opening of a part, and goes on to its end.

    Those that a round begins after one trace see each other's tokens as they are decoded, at no cost: each reads the
    cache of all. Once from a trace that is no merge; what was begun so is not copied.
    """

    trace: int
    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Let a copy of a trace name its answer at once, by its likeliest tokens, and forget the copy."""

    trace: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Let the partner say how much it believes in the latest step of a trace: a process reward."""

    trace: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """Let the trained judge say whether two traces will come to one answer, by what they have written so far."""

    trace: int
    other: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Give up a trace: its cache is free, its tokens stay paid for. There is no reply to wait for."""

    trace: int


# A closed set of frozen classes, checked by exact type: a subclass could bring methods that run in the harness.
Request = Sample | Extend | Branch | Fork | Join | Merge | Share | Probe | Review | Compare | Drop


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
    score: float | None = None
    """Between 0 and 1: a review's geometric mean of the step's probabilities; a comparison's probability."""


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
    by_partner: int = 0
    """Tokens that the partner decoded, which are among the decoded ones."""
    reviewed: int = 0
    """Tokens of the steps that the partner read for reviews."""
    judged: int = 0
    """Tokens that the judge read; it reads each token of a trace once, however often the trace is compared."""
    forced: int = 0
    """Tokens that were forced into copies: read, and not decoded."""
    forced_by_partner: int = 0
    """Those of them that the partner read."""
    merged: int = 0
    """Tokens whose keys and values were taken over from forks, and not read."""
    critical: int = 0
    """Sum over rounds of the longest request: a round waits for all of the one before."""
    critical_work: float = 0.0
    """The same, with the partner's tokens worth more by its parameters."""
    rounds: int = 0
    traces: int = 0
    """Samples that were begun, and branches of samples that had decoded nothing: traces of their own."""
    forks: int = 0
    """Forks and joins."""
    peak_traces: int = 0
    """Most traces that were live at the end of a round."""
    peak_cache: int = 0
    """Most tokens whose keys and values had to be kept at the end of a round: the prompt, and what live traces hold,
    beginnings that they share counted once."""
    sum_cache: int = 0
    """Sum over rounds with live traces of what had to be kept, times the tokens of the longest request."""
    sum_longest: int = 0
    """Sum over these rounds of the tokens of the longest request."""
    stopped: int = 0
    """Samples that did not come to their ends."""

    @property
    def total(self) -> int:
        """All tokens that were decoded for the question, or read by those who judge."""
        # Forced and merged tokens are left out: nobody drew them, and a reader computes them in one parallel pass.
        return self.decoded + self.probed + self.reviewed + self.judged

    @property
    def mean_cache(self) -> float:
        """Tokens that had to be kept, in the mean over the longest chain: rounds that decode nothing do not count."""
        return self.sum_cache / self.sum_longest if self.sum_longest else 0.0

    def work(self, partner_weight: float) -> float:
        """Return what was decoded and reviewed, in tokens of the point's model; the judge's work is not in it.

        Args:
            partner_weight: The partner's parameters over the model's.
        """
        # Probes are always the model's own; `decoded` has the partner's tokens in it, which weigh more.
        own = self.decoded - self.by_partner + self.probed
        return own + partner_weight * (self.by_partner + self.reviewed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One trace as it was left."""

    index: int | None
    """None of copies."""
    partner: bool
    temperature: float
    tokens: tuple[int, ...]
    """All after the prompt, forced ones included."""
    num_forced: int
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the judge said of two traces that are samples."""

    indices: tuple[int, int]
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One answered question."""

    number: int
    answer: str | None
    ledger: Ledger
    stories: tuple[Story, ...] = ()
    """Its traces, in the order in which they were begun."""
    comparisons: tuple[Comparison, ...] = ()


class OptionError(ValueError):
    """An option of a technique has a value that makes no sense; its text is the reason in the record."""


def require(name: str, value: float, *, least: float, most: float = math.inf) -> None:
    """Refuse an option's value that is out of range.

    Args:
        name: The option's.
        value: What it is set to.
        least: The smallest value that is accepted.
        most: The largest one.

    Raises:
        OptionError: It is.
    """
    # Written so that NaN, which compares false with everything, is refused as well.
    if not least <= value <= most:
        above = "" if most == math.inf else f" to {most:g}"
        # When a technique is made and not in the middle of a launch: the text is the reason in the record.
        raise OptionError(f"{name} is {value:g}; {least:g}{above or ' or more'}")


Reader = Callable[[int, Sequence[int]], "str | None"]
"""Reads what a trace answers, from its question's number and its tokens after the prompt."""
