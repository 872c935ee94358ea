"""What techniques had learnt at equal budgets: two curves of a launch, read where as much has been spent of something.

The budget of a launch is what the side that ends first has spent of it: tokens, seconds or bytes. That side is read at
its end. The other one is read at the same budget, at an evaluation if there is one, else between two: on the straight
line over the logarithm of the budget, which is how losses fall, about, and how charts with such an axis are read. No
curve is read beyond its ends. A line is a guess: all that is known is that the curve lies between the two
evaluations, if it neither rises nor falls beyond them. So beside the estimate stands an interval that holds wherever
between them it lies. Between the start, at which nothing has been spent, and the first evaluation behind it there is
no such line, and a loss falls most: there the second interval is all that there is.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from paceline.analysis.points import Point
from paceline.base.families.family import Metric, load_family
from paceline.base.units import format_quantity
from paceline.report.html import Cell, Grid, rows_grid
from paceline.report.layout import CurveSpec, layout_of
from paceline.report.words.estimates import ABSENT, format_effect, format_estimate
from paceline.stats.estimates import (
    Estimate,
    Launches,
    compare_difference,
    compare_ratio,
    estimate_value,
    median,
)

Curves = Mapping[int, Mapping[str, Any]]
"""Launch → columns of what a technique stored as its curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A curve at a budget."""

    value: float | None
    """None between a start at which nothing is spent and the next evaluation."""
    least: float
    most: float
    """Of the two evaluations around it; where one lies at the budget, both are that one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A technique and the baseline at equal budgets, by launch."""

    budgets: Mapping[int, float]
    own: Mapping[int, Reading]
    base: Mapping[int, Reading]
    own_ends: frozenset[int]
    base_ends: frozenset[int]
    """Launches in which a side had spent no more at its end."""


def read_curve(spent: Sequence[float], values: Sequence[float], budget: float) -> Reading | None:
    """Read a curve at a budget; None beyond its ends, or where what is spent becomes less.

    Of evaluations at which as much had been spent, the last counts: what follows costs nothing of it.
    """
    if any(later < earlier for earlier, later in pairwise(spent)):
        return None
    behind = bisect_right(spent, budget)
    if behind == 0:
        return None
    begin, first = spent[behind - 1], values[behind - 1]
    if begin == budget:
        return Reading(value=first, least=first, most=first)
    if behind == len(spent):
        return None
    end, last = spent[behind], values[behind]
    value = None
    if begin > 0:
        share = math.log(budget / begin) / math.log(end / begin)
        value = first + share * (last - first)
    return Reading(value=value, least=min(first, last), most=max(first, last))


def at_equal(own: Curves, base: Curves, quantity: str, axis: str) -> Shared:
    """Read both sides in every launch that both have, where the first of them ends; nowhere without a budget."""
    budgets: dict[int, float] = {}
    readings: dict[int, tuple[Reading, Reading]] = {}
    own_ends: set[int] = set()
    base_ends: set[int] = set()
    for launch in sorted(set(own) & set(base)):
        sides = [(_column(side[launch], axis), _column(side[launch], quantity)) for side in (own, base)]
        if not all(column for side in sides for column in side):
            continue
        ends = [spent[-1] for spent, _ in sides]
        budget = min(ends)
        pair = [read_curve(spent, values, budget) for spent, values in sides]
        if budget <= 0 or pair[0] is None or pair[1] is None:
            continue
        budgets[launch], readings[launch] = budget, (pair[0], pair[1])
        own_ends |= {launch} if ends[0] == budget else set()
        base_ends |= {launch} if ends[1] == budget else set()
    return Shared(
        budgets=budgets,
        own={n: mine for n, (mine, _) in readings.items()},
        base={n: theirs for n, (_, theirs) in readings.items()},
        own_ends=frozenset(own_ends),
        base_ends=frozenset(base_ends),
    )


def _column(columns: Mapping[str, Any], name: str) -> list[float]:
    found = columns.get(name)
    return found if isinstance(found, list) else []


def effect(shared: Shared, metric: Metric) -> Estimate | None:
    """Compare the two sides as their metric is; None where a launch has no value of a side."""
    sides = _values(shared.own), _values(shared.base)
    return _compare(sides[0], sides[1], metric) if sides[0] and sides[1] else None


def between(shared: Shared, metric: Metric) -> tuple[float, float] | None:
    """Return an interval that holds wherever between its evaluations a curve lies; None of fewer than two launches.

    It begins with that of the least differences and ends with that of the largest: a mean of what lies between them is
    nowhere else. Nor is it narrower than that of the line.
    """
    own, base = shared.own.items(), shared.base.items()
    sides = (
        _compare({n: r.least for n, r in own}, {n: r.most for n, r in base}, metric),
        _compare({n: r.most for n, r in own}, {n: r.least for n, r in base}, metric),
        *filter(None, [effect(shared, metric)]),
    )
    lows, highs = [e.low for e in sides if e.low is not None], [e.high for e in sides if e.high is not None]
    return (min(lows), max(highs)) if lows and highs else None


def _compare(own: Mapping[int, float], base: Mapping[int, float], metric: Metric) -> Estimate:
    sides = (Launches(values=side, statistic=metric.statistic) for side in (own, base))
    return (compare_ratio if metric.compared_by == "ratio" else compare_difference)(*sides)


def _values(readings: Mapping[int, Reading]) -> dict[int, float]:
    """Return a side's values; nothing where one is unknown, since the launches that remain would be chosen ones."""
    found = {n: r.value for n, r in readings.items() if r.value is not None}
    return found if len(found) == len(readings) else {}


def equal_grids(point: Point) -> list[Grid]:
    """Return a table for each curve of the family and each budget that a technique knows: all beside the baseline."""
    found = []
    for spec in layout_of(point.family).curves:
        if spec.cumulative:
            continue
        curves = {label: _curves(point, label, spec.quantity) for label in point.labels}
        for axis, unit in spec.over:
            known = any(_knows(of_one, axis) for of_one in curves.values())
            if known and sum(map(bool, curves.values())) > 1:
                found.append(_grid(point, curves, spec, axis, unit))
    return [grid for grid in found if grid.groups]


def _curves(point: Point, label: str, quantity: str) -> Curves:
    """Return a technique's curves that have a quantity: one of the measurements of a launch holds it."""
    found: dict[int, Mapping[str, Any]] = {}
    for (name, _), cell in point.cells.items():
        for m in cell.measurements if name == label else ():
            curve = (m.accounting or {}).get("curve") or {}
            if isinstance(curve.get(quantity), list):
                found.setdefault(m.launch, curve)
    return found


def _grid(point: Point, curves: Mapping[str, Curves], spec: CurveSpec, axis: str, unit: str) -> Grid:
    metric = load_family(point.family).metric(spec.quantity)
    base = curves.get(point.baseline, {})
    rows: list[list[Cell | str]] = []
    if not _knows(base, axis):
        rows.append(_absent(point.baseline, f"the baseline's {axis} are not known"))
    for label, own in curves.items():
        if label == point.baseline or not own or not _knows(base, axis):
            continue
        names = (label, point.baseline)
        shared = at_equal(own, base, spec.quantity, axis)
        reason = _incomparable(own, base, axis, names) or ("" if shared.budgets else _no_budget(names, axis))
        if reason:
            rows.append(_absent(label, reason))
            continue
        whole = between(shared, metric)
        found = effect(shared, metric)
        rows.append(
            [
                label,
                format_quantity(median([*shared.budgets.values()]), unit),
                _reading_text(shared.own, metric),
                _reading_text(shared.base, metric),
                ABSENT if found is None else format_effect(found, metric.compared_by, metric.range_of_values),
                ABSENT if whole is None else f"[{whole[0]:.3g}, {whole[1]:.3g}]",
                str(len(shared.budgets)),
                Cell(text=_where(shared, names), kind="text prose"),
            ]
        )
    mark = "× baseline" if metric.compared_by == "ratio" else "− baseline"
    headers = ("technique", axis, spec.quantity, "baseline's", mark, "between evaluations", "n", "remark")
    return rows_grid(f"{spec.quantity} at equal {axis}", headers, rows)


def _absent(label: str, reason: str) -> list[Cell | str]:
    return [label, *[ABSENT] * 5, "0", Cell(text=f"absent: {reason}", kind="text prose")]


def _knows(curves: Curves, axis: str) -> bool:
    return any(_column(columns, axis) for columns in curves.values())


def _incomparable(own: Curves, base: Curves, axis: str, names: tuple[str, str]) -> str:
    """Say why a technique has spent nothing that could be equal to the baseline's; empty where it has."""
    if not _knows(own, axis):
        return f"the {axis} of {names[0]} are not known"
    counted = [{str(c.get(f"{axis}_from", "")) for c in side.values()} for side in (own, base)]
    if counted[0] != counted[1]:
        ways = (f"{name}'s by the {', '.join(sorted(way))}" for name, way in zip(names, counted, strict=True))
        return f"{axis} are counted in two ways, {' and '.join(ways)}"
    return ""


def _no_budget(names: tuple[str, str], axis: str) -> str:
    return f"in no launch do {names[0]} and {names[1]} both spend {axis}"


def _reading_text(readings: Mapping[int, Reading], metric: Metric) -> str:
    """Write a side's values, or where one is unknown the evaluations between which they lie."""
    values = _values(readings)
    if values:
        estimate = estimate_value(Launches(values=values, statistic=metric.statistic), scale=metric.scale)
        return format_estimate(estimate, metric.unit, metric.range_of_values)
    ends = median([r.least for r in readings.values()]), median([r.most for r in readings.values()])
    return " … ".join(format_quantity(end, metric.unit) for end in ends)


def _where(shared: Shared, names: tuple[str, str]) -> str:
    """Say whose end the budget is, and of whom nothing but the start is known before it."""
    everywhere = frozenset(shared.budgets)
    ends = [name for name, at in zip(names, (shared.own_ends, shared.base_ends), strict=True) if at]
    if shared.own_ends == shared.base_ends == everywhere:
        text = "where both end"
    elif len(ends) == 1:
        text = f"where {ends[0]} ends"
    else:
        text = "where the first of the two ends"
    late = [n for n, side in zip(names, (shared.own, shared.base), strict=True) if not _values(side)]
    return "; ".join([text, *(f"{name} was not evaluated between its start and there" for name in late)])
