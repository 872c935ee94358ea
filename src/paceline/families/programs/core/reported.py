"""Metrics that programs report of themselves: what a name says of unit and direction, and where a value stands.

The names are the suite's own, ``reported_`` with the quantity and its unit behind it: ``reported_tokens_per_s``,
``reported_step_ms``, ``reported_loss``. Nothing here was measured by the harness; every such number is marked so.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from paceline.base.families.family import ANY, TIME_MARGIN, Metric

PREFIX = "reported_"
SELF_REPORTED = "self-reported"
"""The flag of every such number."""
NAME = re.compile(r"[a-z][a-z0-9_]*")
NAME_RULE = (
    "lower-case letters, digits and '_', with the unit at the end, such as tokens_per_s, step_ms or peak_mib"
)
JSON = "json:"
"""Begins a place in JSON: ``json:KEY`` of the output, ``json:KEY@FILE`` of a file that the program writes."""
CONTRACT: Mapping[str, str] = {
    "source": "the program's own figure, taken from its output or from a file that it wrote in the run",
    "verified": "no: self-reported",
}

Better = Literal["lower", "higher", "neither"]
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_BYTES = {
    "bytes": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
}
_RATES = {"tokens": "token/s", "flops": "FLOP/s", "bits": "bit/s"}
_SHARES = ("accuracy", "efficiency", "mfu", "score", "share")
_LOSSES = ("error", "loss", "perplexity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A metric that a program reports, and what its figures are multiplied by to be in the metric's unit."""

    metric: Metric
    factor: float = 1.0


def metric_named(name: str) -> Metric | None:
    """Return the metric of a name that begins with ``reported_``; None for any other."""
    found = reported_named(name)
    return None if found is None else found.metric


@cache
def reported_named(name: str) -> Reported | None:
    """Return what a name says; None where it is no name of a metric that programs report."""
    quantity = name.removeprefix(PREFIX)
    if quantity == name or NAME.fullmatch(quantity) is None:
        return None
    rest, _, ending = quantity.rpartition("_")
    if quantity.endswith("_per_s"):
        what = quantity.removesuffix("_per_s").rpartition("_")[2]
        unit = "B/s" if what in _BYTES else _RATES.get(what, f"{what}/s")
        return _reported(name, unit, "higher", factor=_BYTES.get(what, 1.0))
    if rest and ending in _SECONDS:
        return _reported(name, "s", "lower", factor=_SECONDS[ending])
    if rest and ending in _BYTES:
        return _reported(name, "B", "lower", factor=_BYTES[ending])
    if ending in _SHARES:
        return _compared_by_difference(name, "ratio", "higher")
    if ending in _LOSSES:
        return _compared_by_difference(name, "1", "lower")
    return _compared_by_difference(name, "1", "neither")


def _reported(name: str, unit: str, better: Better, *, factor: float) -> Reported:
    metric = Metric(
        name=name,
        unit=unit,
        better=better,
        doc="Reported by the program itself.",
        contract=CONTRACT,
        margin=TIME_MARGIN,
    )
    return Reported(metric=metric, factor=factor)


def _compared_by_difference(name: str, unit: str, better: Better) -> Reported:
    metric = Metric(
        name=name,
        unit=unit,
        better=better,
        doc="Reported by the program itself.",
        contract=CONTRACT,
        compared_by="difference",
        bounds=ANY,
    )
    return Reported(metric=metric)


def full_name(name: str) -> str:
    """Return a metric's whole name, which may be written without ``reported_`` where it is said where it stands.

    Raises:
        ValueError: It is no name.
    """
    found = name if name.startswith(PREFIX) else PREFIX + name
    if reported_named(found) is None:
        raise ValueError(f"'{name}' is no name of a metric: {NAME_RULE}")
    return found


class ReadingError(Exception):
    """A program did not report what it was said to report; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a program reports a figure: a pattern in its output, or a key in JSON of its output or of a file."""

    pattern: re.Pattern[str] | None = None
    key: str = ""
    file: str = ""

    def read(self, output: str, errors: str, files: Mapping[str, str]) -> float:
        """Return the figure as the program writes it.

        Args:
            output: What the program printed.
            errors: What it printed to its standard error, where a pattern is looked for when the output has none.
            files: By name the texts of files that it wrote in the run.

        Raises:
            ReadingError: There is none.
        """
        if self.pattern is not None:
            return self._matched(self.pattern, output, errors)
        text = files.get(self.file) if self.file else output
        if text is None:
            raise ReadingError(f"the run has not written {self.file}")
        found = value_in(text, self.key)
        if found is None:
            where = self.file or "its output"
            raise ReadingError(f"no JSON object in {where} has the key '{self.key}'")
        return _number(found, f"'{self.key}'")

    @staticmethod
    def _matched(pattern: re.Pattern[str], output: str, errors: str) -> float:
        for text in (output, errors):
            matches = list(pattern.finditer(text))
            if matches:
                return _number(matches[-1][1 if pattern.groups else 0], f"what {pattern.pattern!r} matches")
        raise ReadingError(f"the pattern {pattern.pattern!r} matches nothing that it printed")


def place_of(where: str) -> Place:
    """Read where a figure stands: ``json:KEY``, ``json:KEY@FILE``, or a pattern whose first group is the figure.

    Raises:
        ValueError: It is neither.
    """
    if where.startswith(JSON):
        key, _, file = where.removeprefix(JSON).partition("@")
        if not key:
            raise ValueError(f"{where!r} names no key: json:KEY or json:KEY@FILE")
        return Place(key=key, file=file)
    try:
        return Place(pattern=re.compile(where, re.MULTILINE))
    except re.error as error:
        raise ValueError(f"{where!r} is no regular expression: {error}") from None


def places_of(reported: Mapping[str, str]) -> dict[str, Place]:
    """Return by its whole name where each metric stands.

    Raises:
        ValueError: A name or a place cannot be read.
    """
    return {full_name(name): place_of(where) for name, where in reported.items()}


def value_in(text: str, key: str) -> Any:
    """Return the value of a key in a text that is a JSON object, or in the last line of it that is one and has the key.

    Args:
        text: The text.
        key: Names inside each other are joined by dots.
    """
    for part in (text, *reversed(text.splitlines())):
        if not part.lstrip().startswith("{"):
            continue
        try:
            found = json.loads(part)
        except ValueError:
            continue
        for name in key.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if found is not None:
            return found
    return None


def _number(found: object, what: str) -> float:
    try:
        value = float(found) if isinstance(found, int | float | str) else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or isinstance(found, bool):
        raise ReadingError(f"{what} is {str(found)[:40]!r}, and no finite number")
    return value


Stamp = tuple[int, int, int] | None


def stamp_of(path: Path) -> Stamp:
    """Return what changes when a file is written anew; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
