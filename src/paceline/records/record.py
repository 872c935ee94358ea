"""Records: one immutable file of JSON lines for each run, and the rules that make an illegal record impossible.

A file holds one ``run`` line (where, with what, by whom), ``measurement`` lines (one for each case, launch and metric)
and ``event`` lines; the last line is a ``seal`` event with the digest of everything before it. Corrections are
events in later files. Absent facts are null with a reason beside them.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from pydantic_core import from_json

from paceline.base.aliases import METRICS, technique_first
from paceline.records.names import named_today
from paceline.records.parts import Accounting, PlanFacts, RunnerFacts, SuiteFacts

RECORD_FORMAT = 1
MAX_INTEGER = 2**64
"""Larger ones overflow what reads them; seeds of 64 bits are the largest there are."""
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


class Line(BaseModel):
    """Base of every line of a record file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Run(Line):
    """Who measured what, where, with which code: the provenance of every number in the file."""

    line: Literal["run"] = "run"
    format: int = Field(RECORD_FORMAT, description="Version of this format.")
    run_id: str = Field(
        pattern=r"^[0-9a-z][0-9a-z-]{0,63}$", description="UUID version 7: sorts by time; names the file."
    )
    started: str = Field(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T", description="Begin in UTC, ISO 8601; names the folder."
    )
    reason: Literal[
        "manual", "nightly", "pr", "confirm", "calibrate", "import", "reproduce", "correction"
    ] = Field(description="Why the file was written; a correction holds events only.")
    argv: list[str] = Field(description="The command, with home paths and credentials removed.")
    tool_version: str = Field(description="Version of Paceline.")
    suites: list[SuiteFacts] = Field(
        default_factory=list, description="Name, version, file and sha256 of each suite."
    )
    tier: str | None = Field(None, description="The tier that was run.")
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
        default_factory=dict, description="Source file and sha256 of each technique."
    )
    container: dict[str, Any] | None = Field(None, description="Image, digest and limits; null outside one.")
    packages: dict[str, Any] | None = Field(
        None, description="Python version and frozen packages of the ranks."
    )
    host: dict[str, Any] | None = Field(None, description="Processor, cores, memory, kernel of the host.")
    host_class: str | None = Field(None, description="Coarse class of host and device; series never mix two.")
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


class MetricId(Line):
    """Which quantity a measurement holds, and under which contract."""

    name: str = Field(description="Name in the family's specification.")
    unit: str = Field(description="Base unit of the samples.")
    better: Literal["lower", "higher", "neither"] = Field(description="Which direction is better.")
    statistic: str = Field(description="How samples became the launch's value.")
    contract_id: str = Field(description="Digest of the metric's exact definition.")


class Measurement(Line):
    """One case, one launch, one metric."""

    line: Literal["measurement"] = "measurement"
    record_id: str = Field(description="Digest of run, block, label, launch and metric.")
    run_id: str = Field(description="The run that this line belongs to.")
    suite: str = Field(description="family/name of the suite.")
    suite_version: int = Field(description="Version of the suite.")
    family: str = Field(description="The family.")
    block: str = Field(description="The block: all techniques of one point.")
    case_id: str = Field(description="Digest of workload, parameters, technique and contracts.")
    series_key: str = Field(
        description="Digest of case, technique, contract and host class; of several ranks with their scheduling."
    )
    launch: int = Field(description="Number of the launch, from 0.")
    attempt: int = Field(0, description="Process group within the launch, above 0 after a failure.")
    params: dict[str, str | int | float | bool | None] = Field(description="The point, in base units.")
    technique: str = Field(description="Name of the technique.")
    label: str = Field(description="Name in the suite; differs from the technique for a second entry.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the technique.")
    role: Literal["baseline", "technique"] = Field(description="Role inside the suite.")
    scale: dict[str, int] = Field(description="Nodes and ranks, and degrees of parallelism where used.")
    metric: MetricId = Field(description="What was measured.")
    samples: list[float] = Field(description="Raw samples in base units; empty unless the status is ok.")
    value: float | None = Field(description="The launch's statistic; recomputable from the samples.")
    n: int = Field(description="Number of samples.")
    order: list[int] | None = Field(
        None, description="Position of each sample among the block's timed calls."
    )
    instances: list[int] | None = Field(
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
    absent: dict[str, str] | None = Field(
        None, description="Metrics of this case that could not be measured, each with the reason."
    )
    artifacts: dict[str, str] | None = Field(None, description="Other files of this measurement by name.")

    @model_validator(mode="after")
    def _legal(self) -> Measurement:
        if self.n != len(self.samples):
            raise ValueError(f"n is {self.n}, but there are {len(self.samples)} samples")
        if self.instances is not None and sum(self.instances) != self.n:
            raise ValueError(f"the instances have {sum(self.instances)} samples, but there are {self.n}")
        if self.status != "ok":
            if self.samples or self.value is not None:
                raise ValueError(f"a measurement with status {self.status} cannot hold a number")
            if not self.reason:
                raise ValueError(f"a measurement with status {self.status} needs a reason")
            return self
        if not self.samples or self.value is None:
            raise ValueError("a measurement with status ok needs samples and a value")
        if not all(map(math.isfinite, self.samples)) or not math.isfinite(self.value):
            raise ValueError("a sample is not a finite number")
        passed = (self.correctness or {}).get("passed")
        if self.family == IMPORTED and passed is not None:
            raise ValueError("an imported number cannot claim that an oracle passed")
        if self.family != IMPORTED and not passed:
            raise ValueError("a number is only kept when the oracle passed")
        if self.metric.unit == "s" and min(self.samples) < 0:
            raise ValueError("a duration is negative")
        return self


class Event(Line):
    """Something that happened in a run, or a later correction."""

    line: Literal["event"] = "event"
    kind: EventKind = Field(description="What happened.")
    at: str = Field(description="When, in UTC, ISO 8601.")
    run_id: str | None = Field(None, description="The run that it belongs to or is about.")
    data: dict[str, Any] = Field(default_factory=dict, description="Facts of this kind of event.")


RecordLine = TypeAdapter(Run | Measurement | Event)
_BY_KIND: dict[str, type[Line]] = {"run": Run, "measurement": Measurement, "event": Event}


def parse_line(text: str | bytes) -> Run | Measurement | Event:
    """Read one line of a record file; bytes are UTF-8. Names that were changed since are those of today.

    Raises:
        ValueError: It is not JSON, of an unknown kind, or breaks a rule.
    """
    data = _decoded(text)
    if not isinstance(data, dict) or data.get("line") not in _BY_KIND:
        raise ValueError("not a run, measurement or event line")
    line = _BY_KIND[data["line"]].model_validate(named_today(data))
    assert isinstance(line, Run | Measurement | Event)
    return line


def _decoded(text: str | bytes) -> Any:
    """Return what a JSON text says.

    pydantic's parser takes a quarter of the time of the standard library's, which reads what it does not (halves of
    surrogate pairs) and says what is wrong with numbers that no measurement can have.
    """
    try:
        data = from_json(text, allow_inf_nan=False)
    except ValueError:
        data = None
    if isinstance(data, dict) and _representable(data.values()):
        return data
    whole = text if isinstance(text, str) else text.decode("utf-8")
    return json.loads(whole, parse_constant=_refuse_constant, parse_int=_integer, parse_float=_finite)


def _representable(values: Iterable[Any]) -> bool:
    """Tell whether all numbers in parsed values are finite, and integers within ``MAX_INTEGER``."""
    for value in values:
        kind = type(value)
        if kind is str or value is None:
            continue
        if kind is float:
            if not math.isfinite(value):
                return False
        elif kind is int:
            if not -MAX_INTEGER <= value <= MAX_INTEGER:
                return False
        elif kind is not bool and not _representable(value.values() if kind is dict else value):
            return False
    return True


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _integer(digits: str) -> int:
    if len(digits) > len(str(MAX_INTEGER)) or abs(int(digits)) > MAX_INTEGER:
        raise ValueError(f"{digits[:20]}… is too large a number")
    return int(digits)


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits[:20]} is not a finite number")
    return number


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


class _Ticks:
    """The wall clock in 4096ths of a millisecond, which never gives the same or an earlier reading twice."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def next(self) -> int:
        """Return the reading, or one more than the last if the clock has not gone past that."""
        with self._lock:
            self._last = max((time.time_ns() << 12) // 1_000_000, self._last + 1)
            return self._last


_ticks = _Ticks()


def new_run_id() -> str:
    """Return a UUID version 7 (RFC 9562, section 5.7) that sorts after all this process made before.

    Milliseconds since 1970, then their fraction in twelve bits (section 6.2, method 3), then random bits. Two that fall
    into one 4096th of a millisecond, or a clock that was set back, count on from the last: which of two events was
    written last is read off the order of their files' identities.
    """
    tick = _ticks.next()
    millis, fraction = tick >> 12, tick & 0xFFF
    random_bits = int.from_bytes(os.urandom(8), "big") & ~(0x3 << 62)
    value = (millis & ((1 << 48) - 1)) << 80 | 0x7 << 76 | fraction << 64 | 0x2 << 62 | random_bits
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def host_class(host: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    """Return the class of a host: what must be equal before two results are compared.

    Processor model without its clock, cores, memory rounded to a power of two, and for accelerators model (with the
    profile of a MIG slice), count, power limit and what else lowers their clocks. It survives a reboot, another
    hostname, an update of the kernel and one of the driver: what a driver changes is to be found.
    """
    model = re.sub(
        r"\s*@.*$|\((R|TM|r|tm)\)|\bCPU\b|\bProcessor\b", "", str(host.get("cpu") or "unknown cpu")
    )
    parts = [
        " ".join(model.split()),
        f"{host.get('usable_cores')} cores",
        f"{host.get('memory_class_gib')} GiB",
    ]
    kind = device.get("kind")
    if kind not in (None, "cpu"):
        parts.append(f"{device.get('name')} × {device.get('count')}")
        parts += _set_as(device.get("devices") or ())
    return ", ".join(parts)


def _set_as(devices: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say how accelerators are set, as far as it decides how fast they are; devices of one host may differ."""

    def of_all(texts: Iterable[str | None]) -> list[str]:
        found = sorted({text for text in texts if text})
        return [" and ".join(found)] if found else []

    return [
        *of_all(f"{d['power_limit_w']:.0f} W" if d.get("power_limit_w") else None for d in devices),
        *of_all(_clock(d) for d in devices),
        *of_all(f"partition {d['partition']}" if d.get("partition") else None for d in devices),
    ]


def _clock(settings: Mapping[str, Any]) -> str | None:
    """Say to what a clock is set, where that is not as high as the device goes."""
    clock, highest, level = (settings.get(k) for k in ("clock_set_hz", "clock_max_hz", "level"))
    if clock and highest and clock < highest:
        return f"clock set to {clock / 1e6:.0f} MHz"
    return f"performance level {level}" if level not in (None, "auto") else None


def series_key(family: str, case_id: str, technique: str, host: str | None, contract_id: str) -> str:
    """Return the key under which measurements of different runs form one series; ``host`` is ``series_host``'s."""
    text = "\n".join([case_id, technique_first(family, technique), host or "", contract_id])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def series_host(host: str | None, runner: Mapping[str, Any], ranks: int) -> str | None:
    """Return the class of host and scheduling under which measurements of a group form series.

    Args:
        host: Class of the host.
        runner: The resolved profile; those of before have no ``scheduling``, which was normal.
        ranks: Of the group. A single rank is scheduled alike under all profiles.
    """
    if host is None or ranks < 2 or runner.get("scheduling", "normal") == "normal":
        return host
    return f"{host}, {runner['scheduling']} scheduling"


def record_id(family: str, run_id: str, block: str, label: str, launch: int, metric: str) -> str:
    """Return the identity of a measurement; writing the same one twice is not possible."""
    first = technique_first(family, label), str(launch), METRICS.first(metric)
    text = "\n".join([run_id, block, *first])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def utc(seconds: float | None = None) -> str:
    """Return a time in UTC as ISO 8601 with milliseconds."""
    moment = time.time() if seconds is None else seconds
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    return f"{stamp}.{int(moment % 1 * 1000):03d}Z"
