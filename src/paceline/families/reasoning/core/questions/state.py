"""State of a question that is being answered: its script, which techniques do not see, and the round under way."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.families.reasoning.api.requests import Comparison, Ledger, Plan, Question, Reply, Request
from paceline.families.reasoning.core.questions.lineage import Trace
from paceline.families.reasoning.core.questions.refusals import PlanError

NO_TRACE = -1
"""Number of a copy for which the model's context has no room: it has ended before it began."""

Place = tuple[bool, int]
"""Whether a trace is the partner's, and the model's handle for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What of a question techniques do not see."""

    prompt: tuple[int, ...]
    openings: tuple[tuple[int, ...], ...]
    """Tokens with which each part begins."""
    part_end: tuple[int, ...]
    """Tokens that end a part."""
    step_end: tuple[int, ...]
    """Tokens that end a step."""
    conclusion: tuple[int, ...]
    """Tokens with which what follows all parts begins."""
    probe: tuple[int, ...]
    """Forced tokens after which a trace names its answer."""
    probe_tokens: int
    """Most tokens of such an answer."""


@dataclass(slots=True, kw_only=True)
class QuestionState:
    """One question that is being answered."""

    number: int
    """The question's; a technique has a copy of the question, and cannot change it."""
    question: Question
    script: Script
    plan: Plan
    ledger: Ledger = field(default_factory=Ledger)
    traces: dict[int, Trace] = field(default_factory=dict)
    """By number."""
    round: tuple[Request, ...] = ()
    under_way: set[int] = field(default_factory=set)
    """Traces of this round that decode."""
    num_waiting: int = 0
    """Requests of this round without a reply."""
    replies: dict[int, Reply] = field(default_factory=dict)
    answer: str | None = None
    seen: set[str] = field(default_factory=set)
    """Answers of its traces and probes: it cannot have another one."""
    comparisons: list[Comparison] = field(default_factory=list)

    def own(self, number: int) -> Trace:
        """Return a trace that is still there.

        Raises:
            PlanError: It is not this question's, or was dropped.
        """
        trace = self.traces.get(number)
        if trace is None:
            raise PlanError(f"trace {number} is not one of this question's")
        if trace.dropped:
            raise PlanError(f"trace {number} has been dropped")
        return trace

    def resting(self, number: int, what: str) -> Trace:
        """Return a trace that is there and not under way.

        Raises:
            PlanError: It decodes in this round.
        """
        trace = self.own(number)
        if number in self.under_way:
            raise PlanError(f"trace {number} is {what} in the round that lets it go on")
        # What it saw of others is in no text of its own, so nothing could rebuild what a copy goes on from.
        if trace.shared and what == "copied":
            raise PlanError(f"trace {number} sees others and cannot be copied")
        return trace

    def add(self, trace: Trace) -> int:
        """Give a new trace its number."""
        number = len(self.traces)
        self.traces[number] = trace
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A step that is to be reviewed."""

    state: QuestionState
    place: int
    """In the round."""
    trace: int
    before: tuple[int, ...]
    """All tokens before the step, the prompt's included."""
    step: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a trace of a model decodes for."""

    state: QuestionState
    place: int
    """In the round."""
    trace: int
    """Number of the trace, or of the one that is probed."""
    probe: tuple[int, ...] | None = None
    """All that a probe's answer is read from, but for what it decodes; None for what is no probe."""
