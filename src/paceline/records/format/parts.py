"""Open parts of records: what families keep there where reports read it. Other keys are kept as they are.

Records come from other versions and from other people. What these types refuse is refused when a file is read, so that
a report never meets a curve that is no list of numbers; what they do not name is only ever shown as text.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, TypeAdapter, with_config
from typing_extensions import TypedDict

from paceline.records.format.limits import Name, RunId

_open = with_config(ConfigDict(extra="allow", allow_inf_nan=False))

Count = Annotated[int, Field(ge=0)]
Bar = tuple[Literal["F", "B", "I", "W", "C"], Count, Count, float, float]
"""Kind of a pass, or C for a message that one waits for, stage, microbatch, begin and end in seconds."""


def _even(curve: dict[str, list[float] | str]) -> dict[str, list[float] | str]:
    if len({len(column) for column in curve.values() if isinstance(column, list)}) > 1:
        raise ValueError("its columns have different lengths")
    return curve


def _share(counted: tuple[int, int]) -> tuple[int, int]:
    if counted[0] > counted[1]:
        raise ValueError(f"{counted[0]} of {counted[1]}")
    return counted


def _of_each(counted: tuple[list[int], int]) -> tuple[list[int], int]:
    if any(number > counted[1] for number in counted[0]):
        raise ValueError(f"{max(counted[0])} of {counted[1]}")
    return counted


@_open
class Timeline(TypedDict):
    """One step of every rank, each a list of bars."""

    title: str
    ranks: Annotated[list[Annotated[list[Bar], Field(min_length=1)]], Field(min_length=1)]


@_open
class Example(TypedDict, total=False):
    """A question, and what a technique made of it."""

    question: Required[str]
    level: Required[int | str]
    answer: Required[str]
    given: Required[str | None]
    right: bool
    traces: Required[list[tuple[str, str]]]
    """How each ended, and its text."""


@_open
class CallTimes(TypedDict):
    """One call of a server under load; instants in seconds behind the launch's start."""

    tenant: str
    kind: str
    """What became of it."""
    due_s: float | None
    sent_s: float | None
    first_s: float | None
    """Of the first token."""
    last_s: float | None
    tokens: Count


@_open
class Accounting(TypedDict, total=False):
    """What a case did, beside its samples."""

    curve: Annotated[dict[str, list[float] | str], AfterValidator(_even)]
    """Curves over a run, by quantity, and remarks on them."""
    timeline: list[Timeline]
    courses: list[CallTimes]
    """The first calls of a launch, each with its instants; published records hold them under this key."""
    votes: dict[str, list[float]]
    """A curve beneath a trade-off, by metric."""
    right_by_level: dict[
        Annotated[str, StringConstraints(pattern=r"^-?[0-9]{1,6}$")],
        Annotated[tuple[Count, Annotated[int, Field(ge=1)]], AfterValidator(_share)],
    ]
    """Right answers, and questions."""
    right_traces: Annotated[
        tuple[Annotated[list[Count], Field(min_length=1)], Annotated[int, Field(ge=1)]],
        AfterValidator(_of_each),
    ]
    """Right traces of each question, and how many each has."""
    examples: list[Example]
    harness: dict[str, Any]
    """Seconds that the harness itself took."""
    seconds_to_one_percent: dict[str, Any] | None
    """What an interval of one per cent costs each of two timers."""


@_open
class TuningFacts(TypedDict):
    """How the settings of a suite's techniques had been chosen."""

    suite: str
    """The suite of the trials."""
    trials: int
    """Of each technique."""
    metric: str
    """What the chosen trial was best in."""
    untuned: dict[str, str]
    """Labels that had no trials, and why."""


@_open
class TuningInWords(TypedDict):
    """How settings had been chosen where there was no suite of trials."""

    in_words: str
    """What had been tried, or why nothing."""


@_open
class OwnFile(TypedDict, total=False):
    """A file of a user's own model or data."""

    sha256: Required[Name]
    text: str
    text_left_out: str
    """Why there is no text."""


@_open
class OwnCode(TypedDict):
    """What points name in files of a user's own."""

    names: dict[str, str]
    """``MODULE:NAME`` by parameter."""
    files: dict[str, OwnFile]
    """By their place among the copied files of the job."""


@_open
class SuiteFacts(TypedDict, total=False):
    """A suite as it was when it ran."""

    suite: Required[Name]
    sha256: Name
    baseline: Name
    metrics: dict[Name, Annotated[float, Field(ge=0, le=10)]]
    """Those that it compares, with their margins."""
    diagnostic: list[str]
    """Of these, those that tables show apart; absent where there are none."""
    claims: list[dict[str, Any]]
    tuning: TuningFacts | TuningInWords
    """Absent where nothing was tuned, and nothing claimed that other settings would change."""
    own_code: dict[Name, OwnCode]
    """By the digest that points name; absent where they name none."""


@_open
class Skipped(TypedDict, total=False):
    """What a plan left out."""

    suite: Required[str]
    label: str | None
    params: dict[str, Any]
    reason: Required[str]


@_open
class PartFacts(TypedDict):
    """That a run measured some blocks of its suite, as a night does with a suite that is longer than its budget."""

    num_blocks: int
    of_blocks: int


@_open
class PlanFacts(TypedDict, total=False):
    """The plan of a run."""

    skipped: list[Skipped]
    part: PartFacts
    protocols: dict[str, dict[str, Any]]


@_open
class Link(TypedDict, total=False):
    """A shaped link."""

    rate_bytes_per_s: float | None
    delay_s: float | None


@_open
class RunnerFacts(TypedDict, total=False):
    """A resolved runner profile."""

    name: Name
    device: Name
    scheduling: Name
    links: dict[Name, Link]


@_open
class RetractFacts(TypedDict, total=False):
    """That a run is withdrawn."""

    run_id: RunId
    reason: str


@_open
class NoteFacts(TypedDict, total=False):
    """What somebody added to a run."""

    run_id: RunId
    text: str


@_open
class BaselineFacts(TypedDict, total=False):
    """The run with which others are compared."""

    run_id: RunId
    suites: list[Name]
    host_class: Name | None
    runner: Name | None


FACTS_OF_EVENTS: dict[str, TypeAdapter[Any]] = {
    "retract": TypeAdapter(RetractFacts),
    "annotate": TypeAdapter(NoteFacts),
    "baseline_set": TypeAdapter(BaselineFacts),
}
"""What corrections say where readers act on it, by their kind."""
