"""What a night's units have due, block by block with its age and its time, and what is left to later nights."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.base.counting import number_of
from paceline.drivers.machine import quarantine
from paceline.drivers.machine.devices import on_this_machine
from paceline.records.earlier_runs import RunTimes, by_suite, here, known_times
from paceline.spec.plans.duration import block_times, budget_of, launches_of, start_times
from paceline.spec.plans.plan import Plan, Selection, make_plan, observations
from paceline.spec.plans.unmatched import reasons
from paceline.workflows.nightly.attempts import Attempts
from paceline.workflows.nightly.config import Unit
from paceline.workflows.nightly.schedule import (
    Due,
    DueBlock,
    Place,
    Share,
    a_day_later,
    age_s,
    forecast,
    last_nights,
    parts,
    tonight,
)

HORIZON = 90
"""Nights that are looked ahead."""
Key = tuple[Place, str]
NOTHING_RUNS = "nothing of it runs here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A unit with its whole plan."""

    unit: Unit
    plan: Plan

    @property
    def place(self) -> Place:
        """Suite, runner and tier."""
        return self.unit.suite.name, self.unit.runner.name, self.unit.tier

    def name(self, num_blocks: int) -> str:
        """Name the unit, with how many of its points if not all are meant."""
        whole = len(self.plan.blocks)
        return (
            self.unit.name
            if num_blocks == whole
            else f"{self.unit.name}, {num_blocks} of {number_of(whole, 'point')}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """What a unit leaves to later nights."""

    planned: Planned
    num_blocks: int
    nights: Sequence[int]
    """In how many nights from now they are expected; none within the horizon where empty."""

    @property
    def text(self) -> str:
        """Say when."""
        if not self.nights:
            return f"not within {HORIZON} nights: the budget is far too short for all that is asked for"
        first, last = self.nights[0], self.nights[-1]
        begin = "tomorrow night" if first == 1 else f"in {number_of(first, 'night')}"
        return (
            f"expected {begin}"
            if first == last
            else f"expected {begin}, the last of it in {number_of(last, 'night')}"
        )


def plan_units(units: Sequence[Unit], state: Path | None) -> tuple[dict[Place, Planned], dict[str, str]]:
    """Plan every unit; return those that can be measured, and the names of the others with the reason."""
    planned: dict[Place, Planned] = {}
    skipped: dict[str, str] = {}
    for unit in units:
        plan = make_plan(
            [unit.suite], on_this_machine(unit.runner), Selection(tier=unit.tier, launches=unit.launches)
        )
        standing = quarantine.quarantined(unit.runner.name, state)
        if standing is not None:
            skipped[unit.name] = standing.text()
        elif not plan.num_cases:
            skipped[unit.name] = _nothing_runs(plan)
        else:
            found = Planned(unit=unit, plan=plan)
            planned[found.place] = found
    return planned, skipped


def _nothing_runs(plan: Plan) -> str:
    """Say why nothing of a unit can run here."""
    return f"{NOTHING_RUNS}: {reasons(plan.data['skipped']) or 'it has no point'}"


def due_parts(
    planned: Mapping[Place, Planned],
    times: Sequence[RunTimes],
    attempts: Attempts,
    now: str,
    *,
    without: Collection[Key] = (),
) -> list[Due]:
    """Return what is due of every unit, with its age and its time.

    Args:
        planned: The units.
        times: What earlier runs took, and when.
        attempts: What nights began.
        now: ISO 8601.
        without: Blocks that tonight tried.
    """
    last, host, measured = last_nights(times), here(), by_suite(times)
    found: list[Due] = []
    for place, one in planned.items():
        blocks = [
            b for b in due_blocks(one.plan, measured.get(place, ()), host) if (place, b.block) not in without
        ]
        ages = {b.block: _age_s((place, b.block), last, attempts, now) for b in blocks}
        found += parts(place, one.unit.priority, blocks, ages)
    return found


def _age_s(key: Key, last: Attempts, attempts: Attempts, now: str) -> float:
    """Return the seconds since a night last measured a block, or tried to."""
    tried = [at[key] for at in (last, attempts) if key in at]
    return age_s(max(tried, default=None), now)


def due_blocks(plan: Plan, times: Sequence[RunTimes], host: str) -> list[DueBlock]:
    """Return a plan's blocks with what their launches are likely to take.

    Of blocks that are measured until decided these are the launches that points often need, as far as the plan's own
    budget reaches; those before the first look are made in any case.
    """
    known = known_times(times, plan.data, host=host)
    seconds = block_times(plan.data, observations(plan.data), known)
    starts = start_times(plan.data, known)
    group_of = {name: g["group"] for g in plan.data["groups"] for name in g["blocks"]}
    launches = {b["block"]: launches_of(b["protocol"]) for b in plan.blocks}
    whole_s = sum(launches[name].likely * time.planned_s for name, time in seconds.items())
    share = min(1.0, budget_of(plan.data) / whole_s) if whole_s else 1.0
    return [
        DueBlock(
            block=name,
            likely_s=max(count.low, share * count.likely) * seconds[name].planned_s,
            group=group_of[name],
            start_s=max(count.low, share * count.likely) * starts[group_of[name]].likely_s,
        )
        for name, count in launches.items()
    ]


def left_to_later(
    planned: Mapping[Place, Planned], due: Sequence[Due], wanted: Collection[Key], budget_s: float
) -> list[Later]:
    """Say when the blocks that tonight leaves are expected, if all goes as expected.

    Args:
        planned: The units.
        due: All parts, as they are when tonight has ended.
        wanted: The blocks that tonight did not try.
        budget_s: Of a night.
    """
    when: dict[Key, int] = {}
    for night, shares in enumerate(forecast(a_day_later(due), budget_s=budget_s, nights=HORIZON), start=1):
        for share in shares:
            for block in share.blocks:
                when.setdefault((share.place, block), night)
        if all(key in when for key in wanted):
            break
    found: list[Later] = []
    for place, one in planned.items():
        left = [key for key in wanted if key[0] == place]
        if left:
            expected = [when[key] for key in left if key in when]
            nights = sorted(set(expected)) if len(expected) == len(left) else []
            found.append(Later(planned=one, num_blocks=len(left), nights=nights))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda:
    """What would be measured tonight, and what would be left."""

    tonight: Sequence[Share]
    later: Sequence[Later]
    skipped: Mapping[str, str]


def foresee(
    planned: Mapping[Place, Planned], due: Sequence[Due], skipped: Mapping[str, str], budget_s: float
) -> Agenda:
    """Say what a night that begins now would do."""
    shares = tonight(due, budget_s=budget_s)
    taken = {(s.place, block) for s in shares for block in s.blocks}
    wanted = {(part.place, b.block) for part in due for b in part.blocks} - taken
    rest = a_day_later(due, taken, days=0)
    return Agenda(tonight=shares, later=left_to_later(planned, rest, wanted, budget_s), skipped=skipped)
