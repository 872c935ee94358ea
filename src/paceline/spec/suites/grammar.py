"""The grammar of suite files, as models; ``paceline schema suite`` exports them as JSON Schema for editors.

A suite holds names and numbers only. What needs the family or the techniques to be judged is checked in ``suite``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from paceline.base.units import parse_duration
from paceline.spec.files.models import FileModel
from paceline.spec.ledger.claim_parts import NullArm, PointsReason, Said
from paceline.spec.ledger.premises import Premise
from paceline.spec.suites.launches import LIMIT, Launches, parse_launches

RawScalar = str | int | float | bool | None
TierName = Literal["quick", "standard", "full"]
TIERS: tuple[TierName, ...] = ("quick", "standard", "full")


NumberOrRange = Annotated[
    int | str,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": LIMIT},
                {"type": "string", "pattern": r"^[0-9]+(\.\.[0-9]+)?$"},
            ]
        }
    ),
]


class Protocol(FileModel):
    """How often, in which order and how long a block is measured."""

    launches: NumberOrRange = Field(
        5,
        description="Fresh process groups; the unit of replication. With until: decided a range: launches before the "
        "first look, and the most.",
    )
    until: Literal["launches", "decided"] = Field(
        "launches",
        description="launches: a fixed number. decided: more launches until every comparison of the point is faster, "
        "slower or equivalent.",
    )
    budget: str | float | None = Field(
        None,
        description="With until: decided, the time after which no launch starts but those of the first look.",
    )
    instances: int = Field(
        1,
        ge=1,
        le=64,
        description="Times that a block is run within a launch, each with techniques, communicator, buffers and inputs "
        "made anew; collectives and kernels.",
    )
    order: Literal["abba", "shuffle"] = Field(
        "abba",
        description="Order of techniques inside a block: mirrored rounds, or a seeded shuffle.",
    )
    ci_target: float = Field(
        0.02, gt=0, lt=1, description="Stop when the median's relative half-width is at most this."
    )
    max_seconds: float = Field(
        2.0, gt=0, description="Longest timed part of one block in one launch, in seconds."
    )
    min_samples: int = Field(
        10,
        ge=1,
        description="Samples per technique and launch before stopping early; 1: a call that takes longer than a launch "
        "may is timed once in each.",
    )
    max_samples: int = Field(2000, ge=3, description="Samples per technique and launch at most.")
    warmup: Literal["settle", "none"] | Annotated[int, Field(ge=0)] = Field(
        "settle", description="Until latency settles, none, or a fixed number of rounds."
    )
    warmup_seconds: float = Field(1.0, ge=0, description="Longest warm-up of one block, in seconds.")
    cache: Literal["hot", "cold-rotate", "cold-flush"] = Field(
        "hot",
        description="hot: same buffers; cold-rotate: buffers beyond the last-level cache; cold-flush.",
    )
    kernel_calls: int = Field(
        10,
        ge=0,
        description="Untimed calls for the kernel's byte counters, three times over; 0 leaves them out.",
    )
    extra_timers: Literal["none", "host-clock", "graph-replay", "profiler", "all"] = Field(
        "none",
        description="Kernels: calls that are timed again by other timers once the timed passes are over.",
    )
    timeout: str | float = Field("60s", description="A technique that needs longer on one block is stopped.")

    @field_validator("timeout")
    @classmethod
    def _timeout_is_duration(cls, value: str | float) -> str | float:
        if parse_duration(value) <= 0:
            raise ValueError("the timeout must be positive")
        return value

    @field_validator("launches")
    @classmethod
    def _launches_are_a_number_or_a_range(cls, value: int | str) -> int | str:
        parse_launches(value)
        return value

    @field_validator("budget")
    @classmethod
    def _budget_is_duration(cls, value: str | float | None) -> str | float | None:
        if value is not None and parse_duration(value) <= 0:
            raise ValueError("the budget must be positive")
        return value

    @model_validator(mode="after")
    def _launches_fit_their_end(self) -> Protocol:
        launches = parse_launches(self.launches)
        if self.until == "decided":
            launches.until_decided()
        elif launches.most is not None:
            raise ValueError(f"launches {self.launches} is a range: it needs until: decided")
        elif self.budget is not None:
            raise ValueError("a budget ends what is measured until decided: it needs until: decided")
        return self

    @property
    def planned_launches(self) -> Launches:
        """The number of launches, or their range."""
        return parse_launches(self.launches)

    @model_validator(mode="after")
    def _sample_limits(self) -> Protocol:
        if self.max_samples < self.min_samples:
            raise ValueError(f"max_samples {self.max_samples} is below min_samples {self.min_samples}")
        return self


class MetricSetting(FileModel):
    """How a suite compares one metric."""

    margin: float | None = Field(
        None,
        ge=0,
        description="Equivalence margin: relative, or absolute for metrics compared by difference.",
    )
    diagnostic: bool = Field(
        False,
        description="Compared, and shown apart from the headline metrics, of which a suite has eight at most.",
    )


class TechniqueEntry(FileModel):
    """A technique with options, or the same technique under a second label (for A/A comparisons)."""

    technique: str = Field(description="Name of the technique.")
    label: str | None = Field(None, alias="as", description="Name in tables; default: the technique's own.")
    options: dict[str, RawScalar] = Field(
        default_factory=dict, description="Its settings: keyword-only parameters of its constructor."
    )


class Versus(FileModel):
    """The other side of a claim's ratio when it differs in more than the technique."""

    technique: str | None = Field(None, description="Its label; default: the claim's own technique.")
    where: dict[str, RawScalar] = Field(default_factory=dict, description="Parameters that differ.")


class Measure(FileModel):
    """Which numbers a claim is about."""

    metric: str = Field(description="Name of the metric.")
    technique: str = Field(description="Label of the technique.")
    versus: str | Versus | None = Field(
        None, description="The other side: a label, or a label with parameters of its own."
    )
    where: dict[str, RawScalar] = Field(
        default_factory=dict, description="Parameters that select the points."
    )


TWO_SIDED = ({"ratio_at_most", "ratio_at_least"}, {"value_at_most", "value_at_least"})


class Expect(FileModel):
    """What must hold for the whole interval; one key, or both bounds of a ratio or of a value."""

    ratio_at_most: float | None = Field(None, gt=0, description="Ratio to the other side, upper bound.")
    ratio_at_least: float | None = Field(None, gt=0, description="Ratio to the other side, lower bound.")
    equal_within: float | None = Field(None, ge=0, description="|ratio − 1| at most this.")
    difference_at_most: float | None = Field(None, description="Difference to the other side, upper bound.")
    value_at_most: float | None = Field(None, description="The technique's own value, upper bound.")
    value_at_least: float | None = Field(None, description="The technique's own value, lower bound.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Expect:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if set(given) in TWO_SIDED:
            upper, lower = (float(getattr(self, name)) for name in given)
            if lower > upper:
                raise ValueError(f"nothing is at least {lower:g} and at most {upper:g}")
        elif len(given) != 1:
            raise ValueError(
                f"give exactly one of: {', '.join(type(self).model_fields)}, or both bounds of a ratio or of a value; "
                f"found {len(given)}"
            )
        return self

    @property
    def kind(self) -> str:
        """The name of the key that is set; of two, the first."""
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)


class Claim(FileModel):
    """A paper's statement, or a bound of the suite's own, as something that this suite measures."""

    id: str = Field(description="Short name, unique in the suite.")
    paper: str | None = Field(
        None, description="Slug in baselines/papers.yaml; a bound of the suite's own has none."
    )
    quote: str = Field(description="The statement in a few words of ours.")
    scope: Literal["best", "mean", "range", "qualitative", "bound"] = Field(
        "qualitative", description="What the paper's number is: its best case, a mean, a range, a bound."
    )
    said: Said | None = Field(
        None,
        description="The paper's words or number with their place. A claim that quotes its paper is a reproduction; "
        "one that does not is a conformance, and makes no verdict of the paper.",
    )
    whose: Literal["paper", "ours"] = Field(
        "ours",
        description="Whose number is expected: the paper's own, in its unit, or our testable form of the statement.",
    )
    measure: Measure = Field(description="The numbers that stand for the statement.")
    expect: Expect = Field(description="What they must fulfil.")
    premises: list[str | Premise] = Field(
        default_factory=list,
        description="What must hold in the run for a verdict: premises, or names of the suite's.",
    )
    null_arm: NullArm | None = Field(
        None,
        description="An arm without the mechanism, judged in the place of the side that has it; where it fulfils the "
        "expectation too, the claim says nothing. Default: no effect, where that falls short of what is expected.",
    )
    assumed: dict[str, str] = Field(
        default_factory=dict,
        description="Parameters or laws that create the effect, and what they stand for: the verdict is at most "
        "consistent with a model.",
    )
    points_reason: PointsReason | None = Field(
        None, description="Why it is about the points that `where` selects, and not about all."
    )
    needs: Literal["cuda", "rocm", "npu"] | None = Field(
        None, description="The device that the claim is about; runs on others say nothing about it."
    )
    description: str = Field("", description="How the measured thing stands for the paper's statement.")

    @model_validator(mode="after")
    def _numbers_have_their_place(self) -> Claim:
        if self.paper is None and (self.said is not None or self.whose == "paper"):
            raise ValueError("a bound of the suite's own is no paper's number: leave out 'said' and 'whose'")
        if self.said is None and (self.null_arm is not None or self.assumed):
            raise ValueError("'null_arm' and 'assumed' are about a reproduction: quote the paper in 'said'")
        if self.whose == "paper" and self.said is None:
            raise ValueError("the paper's own number needs 'said': the number, and where it stands")
        return self


class Tuning(FileModel):
    """How the settings of techniques were chosen: the best of equally many trials, on other draws."""

    suite: str = Field(
        description="The suite in which a technique's variants are its trials; they differ in their options."
    )
    trials: int = Field(ge=2, description="Trials of each technique; a suite with other numbers is refused.")
    metric: str = Field(description="What the chosen trial is best in.")
    untuned: dict[str, str] = Field(
        default_factory=dict, description="Labels that had no trials of their own, and why."
    )


class TuningInWords(FileModel):
    """How settings were chosen where there is no suite of trials: that nothing was tried, and why, or what was."""

    in_words: str = Field(
        min_length=1, description="What was tried for which techniques, or why nothing was."
    )


def _kind_of_tuning(given: object) -> str:
    """Tell which of the two forms is meant, by a name that is no key of a suite."""
    in_words = given.keys() == {"in_words"} if isinstance(given, dict) else isinstance(given, TuningInWords)
    return "tuning-in-words" if in_words else "tuning-by-trials"


AnyTuning = Annotated[
    Annotated[Tuning, Tag("tuning-by-trials")] | Annotated[TuningInWords, Tag("tuning-in-words")],
    Discriminator(_kind_of_tuning),
]


def _equal_lengths(group: dict[str, list[RawScalar]]) -> dict[str, list[RawScalar]]:
    if len({len(items) for items in group.values()}) > 1:
        raise ValueError("lists that advance together must be of equal length")
    return group


ZippedLists = Annotated[dict[str, list[RawScalar]], AfterValidator(_equal_lengths)]


class Tier(FileModel):
    """What a tier changes; keys of the matrix replace those of the suite."""

    omit: str | None = Field(None, description="Leave the suite out of this tier, with the reason.")
    matrix: dict[str, list[RawScalar]] = Field(
        default_factory=dict, description="Replaces lists of the matrix."
    )
    zip: list[ZippedLists] | None = Field(None, description="Replaces the zipped lists.")
    exclude: list[dict[str, RawScalar]] = Field(
        default_factory=list, description="Further points to leave out."
    )
    techniques: list[str | TechniqueEntry] | None = Field(
        None, min_length=1, description="Replaces the techniques."
    )
    workload: dict[str, RawScalar] = Field(default_factory=dict, description="Replaces shared parameters.")
    protocol: dict[str, RawScalar] = Field(default_factory=dict, description="Replaces protocol settings.")


class SuiteModel(FileModel):
    """The whole grammar of a suite file."""

    suite: str = Field(description="family/name; the file lies at suites/<family>/<name>.yaml.")
    version: int = Field(ge=1, description="A changed suite gets a new version.")
    family: str = Field(description="collectives, kernels, training, serving, reasoning or programs.")
    description: str = Field(description="One sentence: why anyone should care about this comparison.")
    workload: dict[str, RawScalar] = Field(description="Parameters that all points share.")
    baseline: str = Field(description="The technique (or label) that all others are compared with.")
    techniques: list[str | TechniqueEntry] = Field(min_length=1, description="What is compared.")
    matrix: dict[str, list[RawScalar]] = Field(
        default_factory=dict, description="Every combination of these values is a point."
    )
    zip: list[ZippedLists] = Field(
        default_factory=list, description="Lists of equal length that advance together."
    )
    exclude: list[dict[str, RawScalar]] = Field(
        default_factory=list, description="Points that match all keys of a rule are left out."
    )
    tiers: dict[TierName, Tier] = Field(
        default_factory=dict, description="What quick, standard and full change."
    )
    protocol: Protocol = Field(default_factory=Protocol, description="How it is measured.")
    metrics: dict[str, MetricSetting] = Field(
        default_factory=dict, description="Metrics that are compared; the first ranks the board."
    )
    claims: list[Claim] = Field(default_factory=list, description="What papers say, to be tested.")
    premises: dict[str, Premise] = Field(
        default_factory=dict, description="Premises that several claims have, by the name that claims give."
    )
    tuning: AnyTuning | None = Field(
        None,
        description="How settings were chosen: suite, trials, metric and untuned, or in_words; a suite that claims a "
        "loss says it, and any other without it tunes nothing.",
    )


def merge_protocol(protocol: Protocol, tier: Tier | None) -> Protocol:
    """Overlay a tier's protocol keys on the suite's."""
    if tier is None or not tier.protocol:
        return protocol
    return Protocol.model_validate({**protocol.model_dump(), **tier.protocol})


def suite_schema() -> dict[str, Any]:
    """Return the JSON Schema of suite files for editors and other tools."""
    schema = SuiteModel.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Paceline suite"
    return schema
