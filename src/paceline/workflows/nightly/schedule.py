"""What is due tonight: the oldest and most important first, as far as the budget reaches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from paceline.records.store import RunRecord

DAY_S = 86400.0
Place = tuple[str, str, str]
"""Suite, runner, tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One unit with what decides its turn."""

    place: Place
    priority: float
    age_s: float
    """Since it was last measured by a night; infinite when never."""
    likely_s: float

    @property
    def urgency(self) -> float:
        """Days since its last night, times its priority."""
        return self.priority * self.age_s / DAY_S


def order(units: Sequence[Due]) -> list[Due]:
    """Sort by urgency; among what was never measured the more important, then the shorter come first."""
    return sorted(units, key=lambda u: (-u.urgency, -u.priority, u.likely_s, u.place))


def fits(unit: Due, *, elapsed_s: float, budget_s: float) -> bool:
    """Say whether a unit is likely to end within the budget."""
    return elapsed_s + unit.likely_s <= budget_s


def last_nights(records: Sequence[RunRecord]) -> Mapping[Place, str]:
    """Return when each place was last measured by a night, ISO 8601."""
    found: dict[Place, str] = {}
    for record in records:
        run = record.run
        if run.reason != "nightly":
            continue
        for facts in run.suites:
            place = (str(facts["suite"]), str(run.runner.get("name")), str(run.tier))
            found[place] = max(found.get(place, ""), run.started)
    return found


def age_s(last: str | None, now: str) -> float:
    """Return the seconds between two times in ISO 8601; infinite when there is no first."""
    if last is None:
        return math.inf
    return max((datetime.fromisoformat(now) - datetime.fromisoformat(last)).total_seconds(), 0.0)
