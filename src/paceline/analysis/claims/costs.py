"""What the technique of a claim costs beside what the claim is about: a gain in memory may be paid for in time.

A claim looks at one metric. Its suite compares others, and where one of them is decided against the technique, by more
than its margin and against the same other side at the same points in the same runs, that is told beside the claim.
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
    """A metric in which the technique of a claim is worse than the claim's other side."""

    metric: str
    unit: str
    effect: Estimate
    """Of the technique over the other side, at the point where it is worst."""
    kind: Kind
    """What the effect is."""
    params: Mapping[str, Any]
    """Of that point."""
    num_points: int
    """At how many of the claim's points it is worse."""
    of_points: int
    """How many points of the claim have this metric."""


def costs_of(
    sides: Sides, found: Sequence[Found], points: Sequence[Point], family: Family
) -> tuple[Cost, ...]:
    """Return what is decided against the technique at a claim's points, in the order in which its suite names metrics.

    Nothing of a claim about a value, and of one whose sides are the same technique or stand at different points.

    Args:
        sides: Of the claim.
        found: What was found of it.
        points: Of the place, these among them.
        family: Theirs.
    """
    if sides.other is None or sides.other_where or sides.other == sides.technique:
        return ()
    decided = {(f.point, run.run_id) for f in found for run in f.runs}
    own = [p for p in points if (point_key(p), p.run.run_id) in decided]
    names = dict.fromkeys(name for p in own for name in compared(p.run, p.suite) if name != sides.metric)
    costs = (_cost(name, sides, own, family) for name in names)
    return tuple(cost for cost in costs if cost is not None)


def _cost(name: str, sides: Sides, points: Sequence[Point], family: Family) -> Cost | None:
    """Return in what way the technique is worse in a metric; None where that is decided nowhere."""
    metric, other = family.metric(name), sides.other
    assert other is not None
    worse: list[tuple[float, Point, Estimate]] = []
    num_points = 0
    for point in points:
        cells = [point.cells.get((label, name)) for label in (sides.technique, other)]
        asked = name not in diagnostic(point.run, point.suite)
        if not asked or any(cell is None for cell in cells) or len({c.contract_id for c in cells if c}) > 1:
            continue
        num_points += 1
        effect = point.effect(sides.technique, other, name)
        margin = compared(point.run, point.suite).get(name, metric.margin)
        if judge(effect, margin=margin, better=metric.better, kind=metric.compared_by).name == "slower":
            worse.append((_size(effect.value, metric.compared_by), point, effect))
    if not worse:
        return None
    _, point, effect = max(worse, key=lambda found: found[0])
    return Cost(
        metric=name,
        unit=metric.unit,
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
