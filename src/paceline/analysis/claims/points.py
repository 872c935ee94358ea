"""Which measured points a claim is about, and what was found at them.

A claim is about all points of a suite in a place: a long suite may be measured in parts, and a part of it, measured
again, does not hide the others. Points with fewer launches than others (a quick look at another size, say) do not
decide beside them, but what failed at them is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.analysis.claims.verdicts import NullFound
from paceline.analysis.evidence import (
    OFF_BOARD_REASONS,
    PointKey,
    evidence,
    params_key,
    place_of,
    point_key,
    with_defaults,
)
from paceline.analysis.points import LEADERBOARD_LAUNCHES, Cell, Point, points_of
from paceline.base.counting import number_of
from paceline.base.families.family import Family
from paceline.records.format.record import Run
from paceline.records.store.folder import RunRecord
from paceline.spec.ledger.premises import SettledBy
from paceline.stats.estimates import Estimate, Launches, compare_difference, compare_ratio, estimate_value
from paceline.stats.unpaired import compare_unpaired, compare_unpaired_difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Whose numbers a claim compares, and how."""

    metric: str
    technique: str
    where: Mapping[str, Any]
    other: str | None
    """Label of the other side; None when a claim is about a value."""
    other_where: Mapping[str, Any]
    """Parameters in which the other side's point differs; empty when both sides are of one point."""
    kind: str
    """The expectation's key."""

    @classmethod
    def of(cls, claim: Mapping[str, Any]) -> Sides:
        """Read the sides of a claim as suites write them."""
        measure, kind = claim["measure"], next(iter(claim["expect"]))
        versus = measure.get("versus")
        given: dict[str, Any] = {"technique": versus} if isinstance(versus, str) else dict(versus or {})
        compares = bool(given) and not kind.startswith("value")
        return cls(
            metric=measure["metric"],
            technique=measure["technique"],
            where=measure.get("where", {}),
            other=str(given.get("technique") or measure["technique"]) if compares else None,
            other_where=given.get("where") or {},
            kind=kind,
        )

    @property
    def at_one_point(self) -> str | None:
        """Label of the other side where both are of one point; None where there is no such side."""
        return self.other if not self.other_where else None

    @property
    def text(self) -> str:
        """Both sides, as people write them."""
        if self.other is None:
            return self.technique
        where = ", ".join(f"{key} = {value}" for key, value in self.other_where.items())
        return f"{self.technique} / {self.other} at {where}" if where else f"{self.technique} / {self.other}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Premised:
    """A premise of a claim at one of its points: what was asked, and what the run has."""

    says: str
    """The condition in words."""
    asked: str
    """Which number, and its bound."""
    bound: float | None
    """None where an arm is held against the claim's own expectation."""
    found: Estimate | None
    """None where the run does not tell it."""
    met: bool
    settled_by: SettledBy
    """What would meet it."""
    command: str
    """What to run for that."""
    machine: str = ""
    """What that needs."""
    within_reach: bool = False
    """Whether a machine of two cores can meet it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found at a point, or of all points together."""

    params: Mapping[str, Any]
    estimate: Estimate
    runs: tuple[Run, ...]
    """Newest first."""
    launches: int
    """Of the point with the fewest."""
    point: PointKey | None = None
    """Which point it is; None of several together."""
    premises: tuple[Premised, ...] = ()
    """Of the claim, at this point; of several together at the first."""

    @property
    def speaks(self) -> bool:
        """Whether all premises are met there."""
        return all(premise.met for premise in self.premises)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one place says of a claim."""

    found: tuple[Found, ...]
    left_out: int
    """Points with fewer launches than those that decide."""
    failed: str | None
    """At how many of the points a side gave no number, and why; None when at none."""
    silent: tuple[tuple[Premised, ...], ...] = ()
    """Of each point at which premises are not met, beside others at which all are, these."""
    null: NullFound | None = None
    """What the arm without the mechanism came to at the same points; None where the claim has none."""

    @property
    def speaks(self) -> bool:
        """Whether what was found says something about the claim; what failed everywhere does."""
        return all(found.speaks for found in self.found)


def places_of(
    records: Iterable[RunRecord],
    suites: Sequence[Mapping[str, Any]],
    points_in: Callable[[RunRecord], Sequence[Point]] = points_of,
) -> dict[str, list[list[Point]]]:
    """Return the points of each suite by place, of its newest version that was measured; newest first.

    A place is a host class, a runner and an image. An older version of a suite decides nothing once a newer one was
    measured anywhere: its labels may stand for other settings.

    Args:
        records: Runs.
        suites: Facts of the suites.
        points_in: Gives the points of a run.
    """
    families = {facts["suite"]: facts.get("family") for facts in suites}
    places: dict[str, dict[tuple[str | None, ...], list[Point]]] = {}
    for record in sorted(records, key=lambda r: r.run_id, reverse=True):
        if record.run.reason in OFF_BOARD_REASONS:
            continue
        for point in points_in(record):
            if families.get(point.suite) == point.family:
                place = places.setdefault(point.suite, {}).setdefault(place_of(point), [])
                place.append(with_defaults(point))
    chosen: dict[str, list[list[Point]]] = {}
    for suite, found in places.items():
        newest = max(p.suite_version for points in found.values() for p in points)
        kept = ([p for p in points if p.suite_version == newest] for points in found.values())
        chosen[suite] = [points for points in kept if points]
    return chosen


def measured_in(
    points: Sequence[Point],
    sides: Sides,
    family: Family,
    check: Callable[[Point], tuple[Premised, ...]] = lambda point: (),
) -> Measured:
    """Return what the points of one place say of a claim: those at which its premises are met, or all if none.

    Args:
        points: Of the place.
        sides: Whose numbers the claim compares.
        family: Theirs.
        check: Returns what a point's run says of the claim's premises.
    """
    own, pairs = numbers_in(points, sides, family)
    enough = min(LEADERBOARD_LAUNCHES, max((f.launches for _, f in pairs), default=0))
    tried = [(p, replace(f, premises=check(p))) for p, f in pairs if f.launches >= enough]
    kept = [(p, f) for p, f in tried if f.speaks] or tried
    found = tuple(f for _, f in kept)
    if sides.kind.startswith("value") and family.metric(sides.metric).proportion and len(kept) > 1:
        found = (_pooled([p for p, _ in kept], found, sides),)
    labels = [sides.technique, *([sides.at_one_point] if sides.at_one_point else [])]
    # where nothing was found, a technique that cannot run there has not failed: another place may decide
    failed = _failed(own, labels, ignored=() if pairs else ("unsupported",))
    unmet = [tuple(p for p in f.premises if not p.met) for _, f in tried]
    silent = tuple(filter(None, unmet)) if len(kept) < len(tried) else ()
    return Measured(found=found, left_out=len(pairs) - len(tried), failed=failed, silent=silent)


def numbers_in(
    points: Sequence[Point], sides: Sides, family: Family
) -> tuple[list[Point], list[tuple[Point, Found]]]:
    """Return the points of one place that a claim is about, and what was found where its sides have numbers."""
    same_point = sides.at_one_point
    own = [
        p
        for p in _counting(points, sides.metric, sides.technique, same_point, family)
        if selected(p, sides.where, family)
    ]
    others = (
        own
        if sides.other is None or same_point
        else _counting(points, sides.metric, sides.other, None, family)
    )
    return own, [(p, f) for p in own if (f := found_at(p, others, sides, family)) is not None]


def selected(point: Point, where: Mapping[str, Any], family: Family) -> bool:
    """Tell whether a claim is about a point."""
    for key, raw in where.items():
        parameter = family.parameter(key)
        if parameter is None or point.params.get(key) != parameter.parse(raw):
            return False
    return True


def _counting(
    points: Sequence[Point], metric: str, label: str, other: str | None, family: Family
) -> list[Point]:
    """Return one measurement of each point: where all sides were tried, the best evidence under the newest contract.

    Whether others took the machine says nothing of what no clock measures.
    """
    timed = family.metric(metric).timed
    contract = next((c.contract_id for p in points if (c := p.cells.get((label, metric)))), None)
    same: dict[str, list[Point]] = {}
    for point in points:
        cell = point.cells.get((label, metric))
        if cell is None or cell.contract_id == contract:
            same.setdefault(params_key(point), []).append(point)

    def counts(point: Point) -> tuple[int, tuple[bool, int, int, str]]:
        tried = [side for side in (label, other) if side is not None and _tried(point, side, metric)]
        quiet, grade, launches, run_id = evidence(point)
        return len(tried), (quiet or not timed, grade, launches, run_id)

    return [max(measured, key=counts) for measured in same.values()]


def _tried(point: Point, label: str, metric: str) -> bool:
    return (label, metric) in point.cells or label in point.failures


def found_at(point: Point, others: Sequence[Point], sides: Sides, family: Family) -> Found | None:
    """Return what was found at a point; None where a side has no number."""
    cell = point.cells.get((sides.technique, sides.metric))
    if cell is None:
        return None
    if sides.other is None:
        estimate = estimate_value(cell.launches, scale=family.metric(sides.metric).scale)
        return Found(
            params=point.params,
            estimate=estimate,
            runs=(point.run,),
            launches=estimate.num_launches,
            point=point_key(point),
        )
    there = point if not sides.other_where else _other_point(point, others, sides, family)
    other = there.cells.get((sides.other, sides.metric)) if there else None
    if there is None or other is None or other.contract_id != cell.contract_id:
        return None
    estimate = _effect(cell, other, there.run.run_id == point.run.run_id, sides.kind)
    runs = tuple(sorted({r.run_id: r for r in (point.run, there.run)}.values(), key=lambda r: r.run_id))[::-1]
    return Found(
        params=point.params,
        estimate=estimate,
        runs=runs,
        launches=estimate.num_launches,
        point=point_key(point),
    )


def _other_point(point: Point, others: Sequence[Point], sides: Sides, family: Family) -> Point | None:
    wanted = dict(point.params)
    for key, value in sides.other_where.items():
        parameter = family.parameter(key)
        if parameter is None:
            return None
        wanted[key] = parameter.parse(value)
    return next((p for p in others if dict(p.params) == wanted), None)


def _effect(cell: Cell, other: Cell, paired: bool, kind: str) -> Estimate:
    if kind == "difference_at_most":
        difference = compare_difference if paired else compare_unpaired_difference
        return difference(cell.launches, other.launches)
    if paired and set(cell.values) & set(other.values):
        return compare_ratio(cell.launches, other.launches)
    return compare_unpaired(cell.launches, other.launches)


def _pooled(points: Sequence[Point], found: Sequence[Found], sides: Sides) -> Found:
    """Pool the 0/1 samples of all points: a proportion is about all of them together."""
    values: dict[int, float] = {}
    samples: dict[int, Sequence[float]] = {}
    for index, point in enumerate(points):
        for launch, drawn in point.cells[(sides.technique, sides.metric)].samples.items():
            samples[index * 10_000 + launch] = drawn
            values[index * 10_000 + launch] = sum(drawn) / len(drawn)
    runs = {run.run_id: run for f in found for run in f.runs}
    return Found(
        params={},
        estimate=estimate_value(Launches(values=values, samples=samples), scale="proportion"),
        runs=tuple(runs[key] for key in sorted(runs, reverse=True)),
        launches=min(f.launches for f in found),
        premises=found[0].premises,
    )


def _failed(own: Sequence[Point], labels: Iterable[str], *, ignored: Sequence[str]) -> str | None:
    """Say at how many points a side gave no number, and why; None when at none."""
    for label in dict.fromkeys(labels):
        bad = [p.failures[label][0] for p in own if label in p.failures]
        bad = [m for m in bad if m.status not in ignored]
        if bad:
            return f"{label} failed at {len(bad)} of {number_of(len(own), 'point')}: {bad[0].status}: {bad[0].reason}"
    return None
