"""Measurements of one file, which mostly repeat each other: what they share is checked once, and not in every line.

A line as ``record.dump_line`` writes it is cut where some of its fields begin::

    {"line":"measurement","record_id":"…","run_id":"…",      its own
    "suite":"…" … "case_id":"…",                             its case's
    "series_key":"…","launch":0,"attempt":0,                 its own
    "params":{…} … "scale":{…},                              its case's
    "metric":{…},                                            its metric's
    "samples":[…],"value":…,"n":…,                           its own
    "flags":[…] … }                                          its outcome's

A piece that is some whole fields of a JSON table means the same wherever it stands among fields. So the pieces of a
case and of a metric are read by ``record.parse_line`` once, in a line whose other fields are legal whatever these say,
and an outcome by the same types; later lines with the same bytes share what was read. Own fields are checked in each
line, and so are the rules about several fields. A line that is written otherwise, or breaks a rule, is given to
``parse_line``, which alone says what is wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, create_model
from pydantic_core import from_json

from paceline.base.files.plain_data import within
from paceline.records.format.earlier_names import metrics_today
from paceline.records.format.record import Event, Measurement, MetricId, Run, parse_line

CASE = (
    "suite",
    "suite_version",
    "family",
    "block",
    "case_id",
    "params",
    "technique",
    "label",
    "options",
    "role",
    "scale",
)
"""Fields of a measurement that say of which case it is."""
_HEAD = re.compile(
    rb'\{"line":"measurement","record_id":"([0-9a-z]{1,64})","run_id":"([0-9a-z][0-9a-z-]{0,63})",'
)
_MIDDLE = re.compile(
    rb'"series_key":"([0-9a-z]{1,64})","launch":(0|[1-9][0-9]{0,5}),"attempt":(0|[1-9][0-9]{0,5}),'
)
_METRIC, _SAMPLES, _FLAGS = b'"metric":{', b'"samples":[', b',"flags":'
MOST_BYTES = 1000
"""Of an outcome that others may have as well: a longer one holds what happened in one launch."""
_STAND_IN = (
    b'{"line":"measurement","record_id":"-","run_id":"0",%s"series_key":"-","launch":0,"attempt":0,%s%s'
    b'"samples":[],"value":null,"n":0,"status":"skipped","reason":"-"}'
)


def _from_the_samples_on() -> type[BaseModel]:
    """Return a model of the fields of a measurement from its samples on, each with its type, limits and default."""
    fields = list(Measurement.model_fields.items())
    first = [name for name, _ in fields].index("samples")
    own: dict[str, Any] = {name: (info.rebuild_annotation(), info) for name, info in fields[first:]}
    return create_model("FromSamplesOn", __config__=Measurement.model_config, **own)


FromSamplesOn = _from_the_samples_on()
_OWN_NAMES = FromSamplesOn.model_fields.keys()
_NUMBERS: dict[str, Any] = {"samples": [], "value": None, "n": 0}
"""Stand for the numbers of a line where only its outcome is looked at."""
_validate_own = FromSamplesOn.__pydantic_validator__.validate_python


@dataclass(frozen=True, slots=True)
class _Case:
    """What the lines of a case share."""

    fields: dict[str, Any]
    """All fields of a measurement in their order; those that are not the case's have any value."""
    given: set[str]
    """Names of the case's fields that its lines have."""
    sets: dict[tuple[str, ...], set[str]] = field(default_factory=dict)
    """Names of all fields that a line has, by its own fields from the samples on: shared by lines, never changed."""

    def given_with(self, own: Iterable[str]) -> set[str]:
        """Return the names of all fields of a line that has these of its own."""
        names = tuple(own)
        found = self.sets.get(names)
        if found is None:
            found = self.sets[names] = self.given.union(names)
        return found


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What lines share behind their samples, or have from the samples on."""

    fields: dict[str, Any]
    given: tuple[str, ...]
    """Names of the fields from the samples on that the lines have."""


class RepeatedLines:
    """Reads the lines of one file. Measurements of one case share their point, and of one metric that."""

    def __init__(self) -> None:
        self._cases: dict[tuple[bytes, bytes], _Case | None] = {}
        self._metrics: dict[bytes, MetricId | None] = {}
        self._outcomes: dict[bytes, _Outcome | None] = {}
        self._texts: dict[bytes, str] = {}

    def parse(self, raw: bytes) -> Run | Measurement | Event:
        """Return what ``parse_line`` returns, and raise what it raises."""
        found = self.repeated(raw)
        return parse_line(raw) if found is None else found

    def repeated(self, raw: bytes) -> Measurement | None:
        """Return the measurement of a line that is cut as told above and legal, else None."""
        head = _HEAD.match(raw)
        if head is None:
            return None
        begin = head.end()
        middle = _MIDDLE.match(raw, between := raw.find(b'"series_key":', begin))
        if middle is None:
            return None
        behind = middle.end()
        metric_at = raw.find(_METRIC, behind)
        samples_at = raw.find(_SAMPLES, metric_at)
        if metric_at < 0 or samples_at < 0:
            return None
        key, told = (raw[begin:between], raw[behind:metric_at]), raw[metric_at:samples_at]
        if key not in self._cases or told not in self._metrics:
            self._learn(key, told)
        case, metric = self._cases[key], self._metrics[told]
        if case is None or metric is None:
            return None
        fields = case.fields.copy()
        outcome = self._outcome(raw, samples_at, fields)
        if outcome is None:
            return None
        record_id, run_id = head.groups()
        series_key, launch, attempt = middle.groups()
        fields["record_id"] = record_id.decode()
        fields["run_id"] = self._text(run_id)
        fields["series_key"] = self._text(series_key)
        fields["launch"], fields["attempt"] = int(launch), int(attempt)
        fields["metric"] = metric
        try:
            return Measurement.of_checked(fields, case.given_with(outcome.given))
        except ValueError:
            return None

    def _outcome(self, raw: bytes, samples_at: int, fields: dict[str, Any]) -> _Outcome | None:
        """Put the fields of a line from its samples on among its others; return None where one is not legal.

        Most lines have few samples, and the same as others behind them.
        """
        flags_at = raw.find(_FLAGS, samples_at)
        if flags_at >= 0 and len(raw) - flags_at <= MOST_BYTES:
            numbers = _numbers(b"{" + raw[samples_at:flags_at] + b"}")
            if numbers is not None:
                rest = raw[flags_at + 1 :]
                if rest not in self._outcomes:
                    self._outcomes[rest] = _outcome_of(b"{" + rest, _NUMBERS)
                outcome = self._outcomes[rest]
                if outcome is not None:
                    fields.update(outcome.fields)
                    fields.update(numbers)
                return outcome
        outcome = _outcome_of(b"{" + raw[samples_at:], {})
        if outcome is not None:
            fields.update(outcome.fields)
        return outcome

    def _text(self, name: bytes) -> str:
        """Return a name that many lines have, once."""
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = name.decode()
        return text

    def _learn(self, key: tuple[bytes, bytes], told: bytes) -> None:
        """Read the pieces of a case and of a metric; None where they are no whole fields of these, or not legal."""
        line = None
        if _whole_fields(key, CASE) and _whole_fields([told], ["metric"]):
            try:
                line = parse_line(_STAND_IN % (*key, told))
            except ValueError:
                line = None
        if not isinstance(line, Measurement):
            self._cases.setdefault(key, None)
            self._metrics.setdefault(told, None)
            return
        if self._cases.get(key) is None:
            given = line.model_fields_set - {"reason"}
            self._cases[key] = _Case(line.__dict__, given)
        if self._metrics.get(told) is None:
            self._metrics[told] = line.metric


def _numbers(text: bytes) -> dict[str, Any] | None:
    """Return samples that are some, value and number of a JSON table of these; None where it is another one.

    Their types are those that they have in a measurement, so that it takes no model to convert them.
    """
    try:
        found: dict[str, Any] = from_json(text, allow_inf_nan=False)
    except ValueError:
        return None
    samples, value = found.get("samples"), found.get("value")
    if len(found) != len(_NUMBERS) or type(samples) is not list or type(value) is not float:
        return None
    if type(found.get("n")) is not int or set(map(type, samples)) != {float}:
        return None
    return found if math.isfinite(value) and all(map(math.isfinite, samples)) else None


def _outcome_of(text: bytes, without: Mapping[str, Any]) -> _Outcome | None:
    """Return the checked fields of a line from its samples on, by the names of today; None where one is not legal.

    Args:
        text: A table of them.
        without: Fields that it must not have, and what stands for them.
    """
    try:
        data = from_json(text, allow_inf_nan=False)
        if (
            not within(data.values())
            or not data.keys() <= _OWN_NAMES
            or not data.keys().isdisjoint(without.keys())
        ):
            return None
        data |= metrics_today(data)
        own = _validate_own(data | without)
    except ValueError:
        return None
    fields = own.__dict__
    for name in without:
        del fields[name]
    return _Outcome(fields, tuple(own.__pydantic_fields_set__))


def _whole_fields(pieces: Iterable[bytes], names: Iterable[str]) -> bool:
    """Say whether each piece is one or more whole fields of a table, with a comma behind each, and of these names."""
    for piece in pieces:
        if not piece.endswith(b","):
            return False
        try:
            data = from_json(b"{" + piece[:-1] + b"}", allow_inf_nan=False)
        except ValueError:
            return False
        if not data or not data.keys() <= set(names):
            return False
    return True
