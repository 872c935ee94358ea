"""What became of a night: its units, their alarms, and how much of them was decided."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from paceline.base.counting import number_of
from paceline.base.errors import EXIT_INCORRECT, EXIT_INFRASTRUCTURE, EXIT_OK, EXIT_REGRESSION
from paceline.workflows.nightly.alarms import Suspect
from paceline.workflows.nightly.tally import Tally

Outcome = Literal["measured", "skipped", "failed"]
INTERRUPTED = "interrupted"


@dataclass(slots=True, kw_only=True)
class UnitReport:
    """What became of one unit."""

    name: str
    outcome: Outcome
    why: str = ""
    run_id: str | None = None
    reference: str | None = None
    confirm_run: str | None = None
    alarms: list[Suspect] = field(default_factory=list)
    unconfirmed: list[Suspect] = field(default_factory=list)
    """Suspects that the second run did not find, or that no second run could look at."""
    infrastructure: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    """How many of its comparisons were decided, and what became of the others."""


@dataclass(slots=True, kw_only=True)
class NightReport:
    """What became of a night."""

    nightly: str
    started: str
    units: list[UnitReport] = field(default_factory=list)
    interrupted: bool = False

    @property
    def alarms(self) -> list[Suspect]:
        """All alarms."""
        return [a for u in self.units for a in u.alarms]

    @property
    def tally(self) -> Tally:
        """What became of all comparisons."""
        return sum((u.tally for u in self.units), Tally())

    @property
    def exit_code(self) -> int:
        """Wrong results first, then regressions, then machines that failed."""
        if any(not a.series[3] and ": incorrect:" in a.text for a in self.alarms):
            return EXIT_INCORRECT
        if self.alarms:
            return EXIT_REGRESSION
        failed = any(u.outcome == "failed" or u.infrastructure for u in self.units)
        return EXIT_INFRASTRUCTURE if failed or self.interrupted else EXIT_OK

    def facts(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "tally": asdict(self.tally), "exit_code": self.exit_code}


def summary(unit: UnitReport) -> str:
    """Say in one line what became of a unit, and how much of it was decided."""
    return f"{outcome(unit)}; {unit.tally.text()}" if unit.outcome == "measured" else outcome(unit)


def outcome(unit: UnitReport) -> str:
    """Say in one line what became of a unit."""
    if unit.outcome != "measured":
        return f"{unit.outcome}: {unit.why}"
    parts = [f"run {unit.run_id}"]
    if unit.why:
        parts.append(unit.why)
    if unit.alarms:
        parts.append(number_of(len(unit.alarms), "alarm"))
    if unit.unconfirmed:
        parts.append(f"{number_of(len(unit.unconfirmed), 'suspect')} not confirmed")
    if unit.infrastructure:
        more = len(set(unit.infrastructure)) - 1
        parts.append(f"the machine failed: {unit.infrastructure[0].splitlines()[0]}")
        parts += [f"and for {more} more reasons"] if more else []
    if len(parts) == 1:
        open_ = unit.tally.inconclusive and not unit.tally.decided
        parts.append("nothing was decided" if open_ else "nothing that was decided got worse")
    return "; ".join(parts)
