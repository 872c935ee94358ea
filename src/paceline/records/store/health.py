"""What the harness's own measured tests found: ``health/measured.json`` in a store.

``make test-measured`` writes such a file to ``build/measured.json``; nights put it into their store (docs/testing.md).
One that cannot be read costs its reader a sentence, and nothing else: what it says is shown, never computed with.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from paceline.base.errors import UserError
from paceline.records.format.record_file import open_plain

FOLDER = "health"
FILE = "measured.json"
MAX_BYTES = 16 << 20
"""A longer file is not read."""
HOLDS, FAILS, CANNOT_TELL = "holds", "does not hold", "cannot tell now"
OUTCOMES = (HOLDS, FAILS, CANNOT_TELL)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


class Figure(BaseModel):
    """One number of a test, and what it was held against."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    value: float | None = Field(description="In the unit; null where it was no number.")
    unit: str = Field(description="Such as s or ratio.")
    low: float | None = Field(None, description="Lower end of its interval.")
    high: float | None = Field(None, description="Upper end of its interval.")
    least: float | None = Field(None, description="Lower bound.")
    most: float | None = Field(None, description="Upper bound.")


class Try(BaseModel):
    """One run of a test."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    others_cores: float = Field(description="Cores that were taken by processes of others meanwhile.")
    stolen: float = Field(description="Share of the cores' time that went to other guests of the host.")
    reason: str = Field("", description="Why it did not pass.")
    figures: dict[str, Any] = Field(default_factory=dict, description="What it recorded, figures among it.")


class MeasuredTest(BaseModel):
    """What a test says after its last try."""

    model_config = ConfigDict(frozen=True)

    outcome: Literal["holds", "does not hold", "cannot tell now"]
    tries: list[Try] = Field(min_length=1)

    def figures(self) -> dict[str, Figure]:
        """Return the figures of the last try; what else it recorded is left out."""
        found = {}
        for name, told in self.tries[-1].figures.items():
            try:
                found[name] = Figure.model_validate(told)
            except ValidationError:
                continue
        return found


class Machine(BaseModel):
    """Where it ran."""

    model_config = ConfigDict(frozen=True)

    processor: str
    cores: int
    python: str
    kernel: str


class Health(BaseModel):
    """One run of the measured tests."""

    model_config = ConfigDict(frozen=True)

    commit: str = Field(description="Of the checkout; empty outside of one.")
    changed: bool = Field(description="Whether the checkout had changes beside it.")
    began: str = Field(description="When, in UTC, ISO 8601.")
    seconds: float = Field(description="Of everything.", allow_inf_nan=False)
    machine: Machine
    outcomes: dict[str, MeasuredTest] = Field(description="Test → what it says.")

    @field_validator("began")
    @classmethod
    def _begins_with_a_day(cls, told: str) -> str:
        if _DAY.match(told) is None:
            raise ValueError("no date of ISO 8601")
        date.fromisoformat(told[:10])
        return told

    @property
    def day(self) -> date:
        """Return the day on which it began, in UTC."""
        return date.fromisoformat(self.began[:10])

    def counts(self) -> dict[str, int]:
        """Return how many tests have each outcome."""
        found: Counter[str] = Counter(test.outcome for test in self.outcomes.values())
        return {outcome: found[outcome] for outcome in OUTCOMES}


def path_of(store: Path) -> Path:
    """Return where the file lies in a store."""
    return store / FOLDER / FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHealth:
    """What was found of measured tests."""

    health: Health | None = None
    """The newest that can be read."""
    problems: tuple[str, ...] = ()
    """A sentence for each file that cannot be read."""


def read_health(paths: Iterable[Path]) -> FoundHealth:
    """Read the newest of some files; those that do not exist are passed over."""
    found: list[Health] = []
    problems: list[str] = []
    for path in paths:
        try:
            if path.exists():
                found.append(_read(path))
        except (OSError, ValueError, UserError) as error:
            problems.append(f"{path.parent.name}/{path.name} cannot be read: {_sentence(error)}")
    newest = max(found, key=lambda health: health.began, default=None)
    return FoundHealth(health=newest, problems=tuple(problems))


def _read(path: Path) -> Health:
    with open_plain(path) as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is longer than {MAX_BYTES} bytes")
    return Health.model_validate_json(data)


def _sentence(error: Exception) -> str:
    """Return the first problem in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place}: {first['msg']}" if place else str(first["msg"])
    return str(error) or type(error).__name__
