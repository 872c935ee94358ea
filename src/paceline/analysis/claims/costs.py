"""What a claim's gain costs beside what the claim is about: a gain in memory may be paid for in time.

A claim looks at one metric, and speaks for one of its two sides. Its suite compares others, and where one of them is
decided against that side, by more than its margin and at the same points in the same runs, that is told beside the
claim. Whose gain it is follows from what is expected: ``cache / batches ≥ 1.1`` of a time speaks for ``batches``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.analysis.claims.points import Found, Sides
from paceline.analysis.evidence import point_key
from paceline.analysis.points import Point, compared, diagnostic
from paceline.base.families.family import Family
from paceline.stats.estimates import Estimate
from paceline.stats.verdicts import Kind, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A metric in which the side that a claim speaks for is worse than the other."""

    metric: str
    unit: str
    payer: str
    """Label of the side that the claim speaks for."""
    effect: Estimate
    """Of that side over the other, at the point where it is worst."""
    kind: Kind
    """What the effect is."""
    params: Mapping[str, Any]
    """Of that point."""
    num_points: int
    """At how many of the claim's points it is worse."""
    of_points: int
    """How many points of the claim have this metric."""


def speaks_for_other(sides: Sides, expect: Mapping[str, float], family: Family) -> bool:
    """Return whether a claim's expectation is a gain of its other side, or what that may lose at most.

    False where it has two bounds, asks for equality, or is of a metric that is better neither way.
    """
    better, kind = family.metric(sides.metric).better, next(iter(expect))
    if sides.other is None or len(expect) > 1 or better not in ("lower", "higher"):
        return False
    return kind.endswith("at_least") if better == "lower" else kind.endswith("at_most")


def costs_of(
    sides: Sides,
    expect: Mapping[str, float],
    found: Sequence[Found],
    points: Sequence[Point],
    family: Family,
) -> tuple[Cost, ...]:
    """Return what is decided against the side that a claim speaks for, in the order in which its suite names metrics.

    Nothing of a claim about a value, and of one whose sides are the same technique or stand at different points.

    Args:
        sides: Of the claim.
        expect: What it expects.
        found: What was found of it.
        points: Of the place, these among them.
        family: Theirs.
    """
    if sides.other is None or sides.other_where or sides.other == sides.technique:
        return ()
    decided = {(f.point, run.run_id) for f in found for run in f.runs}
    own = [p for p in points if (point_key(p), p.run.run_id) in decided]
    names = dict.fromkeys(name for p in own for name in compared(p.run, p.suite) if name != sides.metric)
    payer, other = sides.technique, sides.other
    if speaks_for_other(sides, expect, family):
        payer, other = other, payer
    costs = (_cost(name, payer, other, own, family) for name in names)
    return tuple(cost for cost in costs if cost is not None)


def _cost(name: str, payer: str, other: str, points: Sequence[Point], family: Family) -> Cost | None:
    """Return in what way one side is worse than the other in a metric; None where that is decided nowhere."""
    metric = family.metric(name)
    worse: list[tuple[float, Point, Estimate]] = []
    num_points = 0
    for point in points:
        cells = [point.cells.get((label, name)) for label in (payer, other)]
        asked = name not in diagnostic(point.run, point.suite)
        if not asked or any(cell is None for cell in cells) or len({c.contract_id for c in cells if c}) > 1:
            continue
        num_points += 1
        effect = point.effect(payer, other, name)
        margin = compared(point.run, point.suite).get(name, metric.margin)
        if judge(effect, margin=margin, better=metric.better, kind=metric.compared_by).name == "slower":
            worse.append((_size(effect.value, metric.compared_by), point, effect))
    if not worse:
        return None
    _, point, effect = max(worse, key=lambda found: found[0])
    return Cost(
        metric=name,
        unit=metric.unit,
        payer=payer,
        effect=effect,
        kind=metric.compared_by,
        params=point.params,
        num_points=len(worse),
        of_points=num_points,
    )


def _size(value: float, kind: Kind) -> float:
    """Return how large an effect is, whatever its direction."""
    if kind == "difference":
        return abs(value)
    return abs(math.log(value)) if value > 0 else math.inf
