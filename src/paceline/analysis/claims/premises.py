"""Premises of a claim at a point: numbers of the same run that must hold for the claim's own number to speak.

A premise is met where its whole interval lies on the right side, or its number where there is no interval. Where the
run does not tell it, it is not met: a verdict needs all premises, each with its number.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.analysis.claims.points import Premised, Sides, found_at
from paceline.analysis.claims.verdicts import decided, expectation_text
from paceline.analysis.points import Point
from paceline.base.families.family import Family
from paceline.base.families.quantities import Quantity, Witness
from paceline.records.format.record import Measurement
from paceline.spec.ledger.premises import Premise, Source
from paceline.stats.estimates import Estimate, Launches, compare_ratio, estimate_value

REACHED = "reproduced"
"""What an arm has to come to, held against the claim's own expectation."""
REL_TOL = 1e-12
"""What differs less is equal: ends of a constant's interval have been through logarithms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """Holds the premises of one claim at its points."""

    premises: Sequence[Premise]
    expect: Mapping[str, float]
    sides: Sides
    family: Family
    points: Sequence[Point]
    """All of the place: a premise may look at another point of the same run."""

    def at(self, point: Point) -> tuple[Premised, ...]:
        """Return what the run of a point says of each premise."""
        return tuple(self._one(premise, point) for premise in self.premises)

    def _one(self, premise: Premise, point: Point) -> Premised:
        if premise.reached_by is not None:
            sides = self._with_arm(premise.reached_by)
            found = found_at(point, self._same_run(point), sides, self.family)
            estimate = None if found is None else found.estimate
            met = estimate is not None and decided(self.expect, estimate) == REACHED
            what = f"{sides.metric} of {sides.text}"
            return _premised(premise, f"{what}: {expectation_text(self.expect)}", estimate, met)
        estimate = self._estimate(premise, point)
        met = estimate is not None and _lies(estimate, premise.at_least, premise.at_most)
        return _premised(premise, self._asked(premise), estimate, met)

    def _with_arm(self, arm: str) -> Sides:
        """Return the claim's sides with an arm in the place of its technique."""
        other = arm if self.sides.other == self.sides.technique else self.sides.other
        return replace(self.sides, technique=arm, other=other)

    def _same_run(self, point: Point) -> list[Point]:
        return [p for p in self.points if p.run.run_id == point.run.run_id]

    def _estimate(self, premise: Premise, point: Point) -> Estimate | None:
        """Return a premise's number with its interval; None where the run does not tell it."""
        of = premise.of
        assert of is not None
        number = self._launches(of, point)
        if number is None or not number.values:
            return None
        if premise.over is None:
            kind, name = of.named or ("", "")
            return estimate_value(
                number, scale=self.family.metric(name).scale if kind == "metric" else "linear"
            )
        divisor = self._launches(_completed(premise.over, of), point)
        if divisor is None or not set(number.values) & set(divisor.values):
            return None
        try:
            return compare_ratio(number, divisor)
        except (ArithmeticError, ValueError):
            return None

    def _launches(self, source: Source, point: Point) -> Launches | None:
        """Return a number by launch; None where its point, its technique or the number itself is not in the run."""
        there = self._point(source, point)
        label = source.technique or self.sides.technique
        if there is None or source.named is None:
            return None
        kind, name = source.named
        if kind == "metric":
            cell = there.cells.get((label, name))
            return cell.launches if cell is not None else None
        told = _by_launch(there, label)
        if kind == "parameter":
            value = there.params.get(name)
            if not isinstance(value, int | float) or not math.isfinite(value):
                return None
            return Launches(values=dict.fromkeys(told, float(value)))
        quantity = self.family.quantity(name)
        found = {launch: _of(quantity, there, told[launch]) for launch in told} if quantity else {}
        return Launches(values={launch: value for launch, value in found.items() if value is not None})

    def _point(self, source: Source, point: Point) -> Point | None:
        if not source.where:
            return point
        wanted = dict(point.params)
        for key, raw in source.where.items():
            parameter = self.family.parameter(key)
            if parameter is None:
                return None
            wanted[key] = parameter.parse(raw)
        return next((p for p in self._same_run(point) if dict(p.params) == wanted), None)

    def _asked(self, premise: Premise) -> str:
        assert premise.of is not None
        text = _source_text(premise.of, self.sides.technique)
        if premise.over is not None:
            text += f" / {_source_text(_completed(premise.over, premise.of), self.sides.technique)}"
        return (
            f"{text} ≥ {premise.at_least:g}"
            if premise.at_least is not None
            else f"{text} ≤ {premise.at_most:g}"
        )


def _premised(premise: Premise, asked: str, estimate: Estimate | None, met: bool) -> Premised:
    return Premised(
        says=premise.says,
        asked=asked,
        bound=premise.at_most if premise.at_least is None else premise.at_least,
        found=estimate,
        met=met,
        settled_by=premise.settled_by,
        command=premise.command,
        machine=premise.machine,
        within_reach=premise.within_reach,
    )


def _completed(over: Source, of: Source) -> Source:
    """Return a divisor with what it leaves out; it lies at the claim's point unless it names another."""
    changes: dict[str, Any] = {"technique": over.technique or of.technique}
    if over.named is None and of.named is not None:
        kind, name = of.named
        changes[kind] = name
    return over.model_copy(update=changes)


def _source_text(source: Source, technique: str) -> str:
    name = source.named[1] if source.named else "?"
    where = ", ".join(f"{key} = {value}" for key, value in source.where.items())
    text = f"{name} of {source.technique or technique}"
    if source.parameter is not None:
        text = name
    return f"{text} at {where}" if where else text


def _lies(estimate: Estimate, at_least: float | None, at_most: float | None) -> bool:
    low = estimate.value if estimate.low is None else estimate.low
    high = estimate.value if estimate.high is None else estimate.high
    if not math.isfinite(low) or not math.isfinite(high):
        return False
    above = at_least is None or low >= at_least or math.isclose(low, at_least, rel_tol=REL_TOL)
    below = at_most is None or high <= at_most or math.isclose(high, at_most, rel_tol=REL_TOL)
    return above and below


def _by_launch(point: Point, label: str) -> dict[int, list[tuple[str, Measurement]]]:
    """Return a technique's measurements at a point by launch, each with its metric's name."""
    found: dict[int, list[tuple[str, Measurement]]] = {}
    for (owner, metric), cell in point.cells.items():
        if owner == label:
            for measurement in cell.measurements:
                found.setdefault(measurement.launch, []).append((metric, measurement))
    return found


def _of(quantity: Quantity, point: Point, lines: Sequence[tuple[str, Measurement]]) -> float | None:
    """Return a quantity of one launch, whose facts may stand beside any of its metrics."""
    measurements = [m for _, m in lines]
    return quantity.of(
        Witness(
            params=point.params,
            options=measurements[0].options,
            ceilings=ChainMap(*(dict(m.ceilings) for m in measurements if m.ceilings)),
            accounting=ChainMap(*(dict(m.accounting) for m in measurements if m.accounting)),
            values={name: m.value for name, m in lines if m.value is not None},
            host=point.run.host or {},
        )
    )
