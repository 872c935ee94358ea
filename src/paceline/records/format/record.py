"""Records: one immutable file of JSON lines for each run, and the rules that make an illegal record impossible.

A file holds one ``run`` line (where, with what, by whom), ``measurement`` lines (one for each case, launch and metric)
and ``event`` lines; the last line is a ``seal`` event with the digest of everything before it. Corrections are
events in later files. Absent facts are null with a reason beside them.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from paceline.base.counting import number_of
from paceline.records.format.earlier_names import named_today
from paceline.records.format.limits import (
    LaunchNumber,
    Name,
    Number,
    NumberOfRanks,
    RunId,
    check_limits,
    decoded,
    said,
)
from paceline.records.format.parts import FACTS_OF_EVENTS, Accounting, PlanFacts, RunnerFacts, SuiteFacts

RECORD_FORMAT = 1
IMPORTED = "imported"
"""The family of other tools' numbers: kept as written, never passed by an oracle of ours."""

Status = Literal[
    "ok",
    "incorrect",
    "refused",
    "invalid",
    "unsupported",
    "skipped",
    "timeout",
    "crashed",
    "out_of_memory",
    "infrastructure",
]
STATUSES: dict[str, str] = {
    "ok": "measured, and every output passed the oracle",
    "incorrect": "an output was wrong",
    "refused": "the technique broke its contract",
    "invalid": "a number that cannot be (faster than the link, blind oracle)",
    "unsupported": "the technique cannot run this point",
    "skipped": "not tried, for the stated reason",
    "timeout": "a stage did not end within the limit",
    "crashed": "a rank raised or died",
    "out_of_memory": "memory ran out",
    "infrastructure": "the machine failed, not the technique",
}
"""What each status of a measurement means."""

EventKind = Literal[
    "retract",
    "annotate",
    "baseline_set",
    "waiver",
    "launch_begin",
    "launch_end",
    "block_end",
    "block_stopped",
    "case_failed",
    "raised",
    "interrupted",
    "resumed",
    "out_of_time",
    "unreadable",
    "submitted",
    "task_end",
    "seal",
]


_set = object.__setattr__
_DECODED: Any = {"decoded": True}
"""Context of the validation of what ``decoded`` returned."""


class Line(BaseModel):
    """Base of every line of a record file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _within_limits(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, dict) and info.context is not _DECODED:  # else ``decoded`` has looked
            check_limits(data.values())
        return data


class Run(Line):
    """Who measured what, where, with which code: the provenance of every number in the file."""

    line: Literal["run"] = "run"
    format: int = Field(RECORD_FORMAT, ge=1, description="Version of this format.")
    run_id: RunId = Field(description="UUID version 7: sorts by time; names the file.")
    started: str = Field(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T",
        max_length=40,
        description="Begin in UTC, ISO 8601; names the folder.",
    )
    reason: Literal[
        "manual", "nightly", "pr", "confirm", "calibrate", "import", "reproduce", "correction"
    ] = Field(description="Why the file was written; a correction holds events only.")
    argv: list[str] = Field(description="The command, with home paths and credentials removed.")
    tool_version: Name = Field(description="Version of Paceline.")
    suites: list[SuiteFacts] = Field(
        default_factory=list, description="Name, version, file and sha256 of each suite."
    )
    tier: Name | None = Field(None, description="The tier that was run.")
    plan_sha256: str | None = Field(None, description="Digest of the plan; its text lies in the job folder.")
    plan: PlanFacts | None = Field(None, description="Runner, groups, seed and skipped cases of the plan.")
    runner: RunnerFacts = Field(default_factory=RunnerFacts, description="The resolved runner profile.")
    request: str | None = Field(
        None, description="Text that was submitted (sbatch script, container request)."
    )
    code: dict[str, Any] = Field(
        default_factory=dict, description="Commit, dirty flag, and the hash of an uncommitted diff."
    )
    techniques: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Source file and sha256 of each technique; of a user's own also its text.",
    )
    container: dict[str, Any] | None = Field(None, description="Image, digest and limits; null outside one.")
    packages: dict[str, Any] | None = Field(
        None, description="Python version and frozen packages of the ranks."
    )
    host: dict[str, Any] | None = Field(None, description="Processor, cores, memory, kernel of the host.")
    host_class: Name | None = Field(
        None, description="Coarse class of host and device; series never mix two."
    )
    device: dict[str, Any] | None = Field(None, description="The device as its adapter describes it.")
    telemetry: dict[str, Any] | None = Field(None, description="Load and clocks when the run began.")
    seeds: dict[str, Any] = Field(
        default_factory=dict, description="The plan's seed, and whether it was fixed."
    )
    flags: dict[str, Any] = Field(default_factory=dict, description="Determinism and threading settings.")
    environment: dict[str, str] = Field(
        default_factory=dict, description="Allow-listed variables of the ranks."
    )
    linked_run: str | None = Field(None, description="The run that this one repeats or confirms.")
    imported_from: dict[str, Any] | None = Field(None, description="Source file and format of an import.")

    @property
    def fixed_seed(self) -> int | None:
        """The seed that all draws follow from; None where entropy was mixed in, which nobody could foresee."""
        return self.seeds.get("seed") if self.seeds.get("fixed") else None

    @field_validator("format")
    @classmethod
    def _of_a_known_format(cls, number: int) -> int:
        if number > RECORD_FORMAT:
            raise ValueError(f"{number} is of a later version; this one reads up to {RECORD_FORMAT}")
        return number

    @field_validator("started")
    @classmethod
    def _at_a_time(cls, text: str) -> str:
        if datetime.fromisoformat(text).tzinfo is None:
            raise ValueError("it has no time zone; UTC is written with Z")
        return text


class MetricId(Line):
    """Which quantity a measurement holds, and under which contract."""

    name: Name = Field(description="Name in the family's specification.")
    unit: Name = Field(description="Base unit of the samples.")
    better: Literal["lower", "higher", "neither"] = Field(description="Which direction is better.")
    statistic: Name = Field(description="How samples became the launch's value.")
    contract_id: Name = Field(description="Id of the version of the contract under which it was measured.")


class Measurement(Line):
    """One case, one launch, one metric."""

    line: Literal["measurement"] = "measurement"
    record_id: Name = Field(description="Digest of run, block, label, launch and metric.")
    run_id: RunId = Field(description="The run that this line belongs to.")
    suite: Name = Field(description="family/name of the suite.")
    suite_version: Number = Field(description="Version of the suite.")
    family: Name = Field(description="The family.")
    block: Name = Field(description="The block: all techniques of one point.")
    case_id: Name = Field(description="Digest of workload, parameters, technique and contracts.")
    series_key: Name = Field(
        description="Digest of case, technique, contract and host class; of several ranks with their scheduling."
    )
    launch: LaunchNumber = Field(description="Number of the launch, from 0.")
    attempt: LaunchNumber = Field(0, description="Process group within the launch, above 0 after a failure.")
    params: dict[str, str | int | float | bool | None] = Field(description="The point, in base units.")
    technique: Name = Field(description="Name of the technique.")
    label: Name = Field(description="Name in the suite; differs from the technique for a second entry.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the technique.")
    role: Literal["baseline", "technique"] = Field(description="Role inside the suite.")
    scale: dict[Name, NumberOfRanks] = Field(
        description="Nodes and ranks, and degrees of parallelism where used."
    )
    metric: MetricId = Field(description="What was measured.")
    samples: list[float] = Field(description="Raw samples in base units; empty unless the status is ok.")
    value: float | None = Field(description="The launch's statistic; recomputable from the samples.")
    n: Number = Field(description="Number of samples.")
    order: list[Number] | None = Field(
        None, description="Position of each sample among the block's timed calls."
    )
    instances: list[Number] | None = Field(
        None,
        description="Samples of each instance of the launch, in order; null where the launch had one, or where "
        "all gave the same once.",
    )
    warmup: list[float] | None = Field(None, description="Warm-up samples: kept, never analysed.")
    stop_reason: str | None = Field(None, description="Why sampling stopped.")
    flags: list[str] = Field(default_factory=list, description="Warnings, such as bimodal.")
    cross_rank: dict[str, float | None] | None = Field(None, description="Spread over ranks, arrival skew.")
    ceilings: dict[str, Any] | None = Field(
        None, description="Calibrated and datasheet ceilings, binding term."
    )
    predicted: float | None = Field(None, description="The technique's closed form for this metric.")
    accounting: Accounting | None = Field(None, description="Calls requested, ok, failed, dropped.")
    status: Status = Field(description="ok, or what went wrong.")
    reason: str | None = Field(None, description="Why, when the status is not ok or the value is absent.")
    detail: Any = Field(None, description="Traceback, or what each rank was doing.")
    correctness: dict[str, Any] | None = Field(None, description="Oracle, checks, errors.")
    isolation: Literal["bubblewrap", "user-namespaces", "unisolated"] | None = Field(
        None, description="What a candidate, a file of a user's, ran in; null for a shipped technique."
    )
    absent: dict[str, str] | None = Field(
        None, description="Metrics of this case that could not be measured, each with the reason."
    )
    artifacts: dict[str, str] | None = Field(None, description="Other files of this measurement by name.")

    @classmethod
    def of_checked(cls, fields: dict[str, Any], given: set[str]) -> Measurement:
        """Return the measurement of fields that were checked one by one.

        Args:
            fields: All fields in their order, each by its type; they become the measurement's.
            given: Names of those that its line has; the set may be other measurements' as well.

        Raises:
            ValueError: A rule about several of them is broken.
        """
        found = cls.__new__(cls)
        _set(found, "__dict__", fields)  # as pydantic's ``model_construct`` does, which looks at each field
        _set(found, "__pydantic_fields_set__", given)
        _set(found, "__pydantic_extra__", None)
        _set(found, "__pydantic_private__", None)
        found._check_together()
        return found

    @model_validator(mode="after")
    def _legal(self) -> Measurement:
        self._check_together()
        return self

    def _check_together(self) -> None:
        """Raise ``ValueError`` where fields that are legal each do not fit each other."""
        if self.n != len(self.samples):
            raise ValueError(f"n is {self.n}, but there are {number_of(len(self.samples), 'sample')}")
        ranks = self.params.get("ranks")
        if isinstance(ranks, int | float) and ranks < 1:
            raise ValueError(f"a point of {number_of(ranks, 'rank', form='g')}")
        if self.instances is not None and sum(self.instances) != self.n:
            raise ValueError(
                f"the instances have {number_of(sum(self.instances), 'sample')}, but there are {self.n}"
            )
        if self.status != "ok":
            if self.samples or self.value is not None:
                raise ValueError(f"a measurement with status {self.status} cannot hold a number")
            if not self.reason:
                raise ValueError(f"a measurement with status {self.status} needs a reason")
            return
        if not self.samples or self.value is None:
            raise ValueError("a measurement with status ok needs samples and a value")
        passed = (self.correctness or {}).get("passed")
        if self.family == IMPORTED and passed is not None:
            raise ValueError("an imported number cannot claim that an oracle passed")
        if self.family != IMPORTED and not passed:
            raise ValueError("a number is only kept when the oracle passed")
        if self.metric.unit == "s" and min(self.samples) < 0:
            raise ValueError("a duration is negative")


class Event(Line):
    """Something that happened in a run, or a later correction."""

    line: Literal["event"] = "event"
    kind: EventKind = Field(description="What happened.")
    at: Name = Field(description="When, in UTC, ISO 8601.")
    run_id: RunId | None = Field(None, description="The run that it belongs to or is about.")
    data: dict[str, Any] = Field(default_factory=dict, description="Facts of this kind of event.")

    @model_validator(mode="after")
    def _told_as_readers_expect(self) -> Event:
        facts = FACTS_OF_EVENTS.get(self.kind)
        try:
            if facts is not None:
                facts.validate_python(self.data)
        except ValidationError as error:
            raise ValueError(f"data.{said(error)}") from None
        return self


RecordLine = TypeAdapter(Run | Measurement | Event)
_BY_KIND: dict[str, type[Line]] = {"run": Run, "measurement": Measurement, "event": Event}


def parse_line(text: str | bytes) -> Run | Measurement | Event:
    """Read one line of a record file; bytes are UTF-8. Names that were changed since are those of today.

    Raises:
        ValueError: It is not JSON, of an unknown kind, beyond a limit, or breaks a rule; ``limits.said`` tells which.
    """
    data = decoded(text)
    kind = data.get("line")
    if not isinstance(kind, str) or kind not in _BY_KIND:
        raise ValueError("not a run, measurement or event line")
    line = _BY_KIND[kind].model_validate(named_today(data), context=_DECODED)
    assert isinstance(line, Run | Measurement | Event)
    return line


def dump_line(line: Line) -> str:
    """Write one line of a record file, without keys that are null by default."""
    data = line.model_dump(mode="json", exclude_defaults=False)
    optional = {n for n, f in type(line).model_fields.items() if f.default is None}
    kept = {k: v for k, v in data.items() if not (v is None and k in optional)}
    text = json.dumps(kept, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode(
        "utf-8"
    )  # a lone surrogate becomes its JSON escape


def record_schema() -> dict[str, Any]:
    """Return the JSON Schema of a record file's lines."""
    schema = RecordLine.json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "One line of a Paceline record file"
    return schema
