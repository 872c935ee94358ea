"""What a run failed at, each failure said once: how many cases, launches and ranks it struck, and why.

A machine without a device fails every case of every launch on every rank for one reason; a person reads it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.base.counting import number_of
from paceline.base.root_cause import kind_of, ranks_text, without_ranks
from paceline.records.format.record import Measurement

MOST_NAMES = 4
"""Techniques or suites that are named; more are counted."""
NO_REASON = "no reason is recorded"


@dataclass(slots=True, kw_only=True)
class Failure:
    """Measurements without a number that have one reason."""

    status: str
    reason: str
    """Of the first of them, without the ranks in front."""
    measurements: list[Measurement] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    """Ranks that any of the reasons names."""

    @property
    def num_cases(self) -> int:
        """Techniques at points."""
        return len({(m.suite, m.block, m.label) for m in self.measurements})

    @property
    def launches(self) -> list[int]:
        """The launches that failed."""
        return sorted({m.launch for m in self.measurements})

    @property
    def extent(self) -> str:
        """Count what was struck: ``12 cases, 3 launches, 2 ranks``; what is one is left out or named."""
        counts = [(self.num_cases, "cases"), (len(self.launches), "launches")]
        parts = [f"{number} {noun}" for number, noun in counts if number > 1]
        if self.ranks:
            parts.append(
                ranks_text(self.ranks) if len(self.ranks) == 1 else number_of(len(self.ranks), "rank")
            )
        return ", ".join(parts)

    @property
    def said(self) -> str:
        """Say why, and how much it struck."""
        return f"{self.extent}: {self.reason}" if self.extent else self.reason

    def text(self) -> str:
        """Say it in one line: status, suites and technique, extent, reason."""
        suites = _names({m.suite for m in self.measurements}, "suites")
        labels = _names({m.label for m in self.measurements}, "techniques")
        place = f"{suites} {labels}"
        if len(self.measurements) == 1:
            place += f" launch {self.measurements[0].launch}"
        return f"{self.status}: {place}: {self.said}"

    def facts(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "status": self.status,
            "reason": self.reason,
            "cases": self.num_cases,
            "launches": self.launches,
            "ranks": sorted(self.ranks),
        }


def grouped(measurements: Iterable[Measurement]) -> list[Failure]:
    """Group measurements without a number by status and reason, in the order in which each came first."""
    found: dict[tuple[str, str], Failure] = {}
    for m in measurements:
        if m.status == "ok":
            continue
        ranks, reason = without_ranks(m.reason or NO_REASON)
        failure = found.setdefault(_key(m), Failure(status=m.status, reason=reason))
        failure.measurements.append(m)
        failure.ranks |= ranks
    return list(found.values())


def _key(m: Measurement) -> tuple[str, str]:
    return m.status, kind_of(m.reason or NO_REASON)


def _names(names: Iterable[str], noun: str) -> str:
    listed: Sequence[str] = sorted(set(names))
    return ", ".join(listed) if len(listed) <= MOST_NAMES else f"{len(listed)} {noun}"
