"""What is due tonight: the oldest and most important first, as far as the budget reaches, and nothing waits for ever.

A *part* is what a suite on a runner has of one age: all of its blocks, or those that one night measured. Parts take
turns by urgency. One that does not fit into what is left of the night waits; one that is longer than a whole night's
budget is divided, block by block. What stays free at the end goes to some blocks of those that wait. The first of a
night always begins, with one block at least: whatever is most urgent is measured, however long it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from paceline.records.earlier_runs import RunTimes

DAY_S = 86400.0
SPARE = 0.1
"""If more than this share of a budget stays free, parts that would fit into a night of their own are divided, too."""
Place = tuple[str, str, str]
"""Suite, runner, tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueBlock:
    """One block of a part."""

    block: str
    likely_s: float
    """All its launches."""
    group: str = ""
    start_s: float = 0.0
    """Starting its process group as often; blocks of one group share that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A part with what decides its turn."""

    place: Place
    priority: float
    age_s: float
    """Since a night last tried it; infinite when never."""
    likely_s: float
    blocks: tuple[DueBlock, ...] = ()

    @property
    def urgency(self) -> float:
        """Days since its last night, times its priority."""
        return self.priority * self.age_s / DAY_S


Taken = dict[Place, list[tuple[Due, DueBlock]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What tonight measures of a suite on a runner, in one run."""

    place: Place
    blocks: tuple[str, ...]
    age_s: float
    """Of its oldest block."""
    likely_s: float
    too_long: bool = False
    """It is likely to end after the budget, and begins because it is the most urgent."""


def order(units: Sequence[Due]) -> list[Due]:
    """Sort by urgency; among what was never measured the more important, then the shorter come first."""
    return sorted(units, key=lambda u: (-u.urgency, -u.priority, u.likely_s, u.place))


def cost_s(blocks: Iterable[DueBlock]) -> float:
    """Return what some blocks take in one run: each its launches, and each process group its starts once."""
    starts: dict[str, float] = {}
    total = 0.0
    for block in blocks:
        total += block.likely_s
        starts[block.group] = max(starts.get(block.group, 0.0), block.start_s)
    return total + sum(starts.values())


def parts(
    place: Place, priority: float, blocks: Sequence[DueBlock], ages_s: Mapping[str, float]
) -> list[Due]:
    """Divide a suite's blocks by their age: one part where one night measured them all, or none did."""
    by_age: dict[float, list[DueBlock]] = {}
    for block in blocks:
        by_age.setdefault(ages_s.get(block.block, math.inf), []).append(block)
    return [
        Due(place=place, priority=priority, age_s=age, likely_s=cost_s(found), blocks=tuple(found))
        for age, found in by_age.items()
    ]


def tonight(
    due: Sequence[Due], *, budget_s: float, elapsed_s: float = 0.0, first: bool = True
) -> list[Share]:
    """Choose what is measured in the rest of a night, in its order.

    Args:
        due: All parts.
        budget_s: Of a whole night.
        elapsed_s: How much of it is over.
        first: Nothing was measured tonight.
    """
    taken: Taken = {}
    left_s = budget_s - elapsed_s
    waiting: list[Due] = []
    too_long = False
    for number, part in enumerate(order(due)):
        fitting = _fitting(part, taken, left_s)
        if len(fitting) < len(part.blocks):
            if first and number == 0 and not fitting:
                fitting, too_long = part.blocks[:1], True
            elif part.likely_s <= budget_s and not (first and number == 0):
                waiting.append(part)
                continue
        left_s -= _take(part, fitting, taken)
    for part in waiting if left_s > SPARE * budget_s else ():
        left_s -= _take(part, _fitting(part, taken, left_s), taken)
    return [
        _share(place, found, too_long=too_long and n == 0) for n, (place, found) in enumerate(taken.items())
    ]


def _fitting(part: Due, taken: Taken, left_s: float) -> tuple[DueBlock, ...]:
    """Return a part's blocks that fit into the rest beside what was taken of the same place, one after another."""
    started: dict[str, float] = {}
    for _, block in taken.get(part.place, ()):
        started[block.group] = max(started.get(block.group, 0.0), block.start_s)
    fitting: list[DueBlock] = []
    for block in part.blocks:
        start_s = max(block.start_s - started.get(block.group, 0.0), 0.0)
        if block.likely_s + start_s <= left_s:
            left_s -= block.likely_s + start_s
            started[block.group] = started.get(block.group, 0.0) + start_s
            fitting.append(block)
    return tuple(fitting)


def _take(part: Due, blocks: Sequence[DueBlock], taken: Taken) -> float:
    """Take blocks for tonight; return the seconds that they add."""
    if not blocks:
        return 0.0
    beside = taken.setdefault(part.place, [])
    before_s = cost_s(block for _, block in beside)
    beside += [(part, block) for block in blocks]
    return cost_s(block for _, block in beside) - before_s


def _share(place: Place, found: Sequence[tuple[Due, DueBlock]], *, too_long: bool) -> Share:
    return Share(
        place=place,
        blocks=tuple(block.block for _, block in found),
        age_s=max(part.age_s for part, _ in found),
        likely_s=cost_s(block for _, block in found),
        too_long=too_long,
    )


def forecast(due: Sequence[Due], *, budget_s: float, nights: int) -> Iterator[list[Share]]:
    """Yield what this night and the coming ones will measure if all goes as expected, one night a day."""
    for _ in range(nights):
        shares = tonight(due, budget_s=budget_s)
        yield shares
        due = a_day_later(due, {(s.place, block) for s in shares for block in s.blocks})


def a_day_later(
    due: Sequence[Due], measured: Collection[tuple[Place, str]] = (), *, days: float = 1.0
) -> list[Due]:
    """Return what is due so many days later, some blocks having been measured now."""
    later: list[Due] = []
    for part in due:
        rest = tuple(b for b in part.blocks if (part.place, b.block) not in measured)
        done = tuple(b for b in part.blocks if (part.place, b.block) in measured)
        for blocks, old_s in ((rest, part.age_s + days * DAY_S), (done, days * DAY_S)):
            if blocks:
                later.append(replace(part, blocks=blocks, age_s=old_s, likely_s=cost_s(blocks)))
    return _merged(later)


def _merged(due: Sequence[Due]) -> list[Due]:
    """Join the parts of a place that are of one age."""
    joined: dict[tuple[Place, float], Due] = {}
    for part in due:
        before = joined.get((part.place, part.age_s))
        blocks = (*before.blocks, *part.blocks) if before else part.blocks
        joined[part.place, part.age_s] = replace(part, blocks=blocks, likely_s=cost_s(blocks))
    return list(joined.values())


def last_nights(times: Sequence[RunTimes]) -> Mapping[tuple[Place, str], str]:
    """Return when each block of each place was last measured by a night, ISO 8601."""
    found: dict[tuple[Place, str], str] = {}
    for run in times:
        if run.reason == "nightly":
            for name, block in run.blocks.items():
                key = ((block.suite, run.runner, run.tier), name)
                found[key] = max(found.get(key, ""), run.started)
    return found


def age_s(last: str | None, now: str) -> float:
    """Return the seconds between two times in ISO 8601; infinite when there is no first."""
    if last is None:
        return math.inf
    return max((datetime.fromisoformat(now) - datetime.fromisoformat(last)).total_seconds(), 0.0)
