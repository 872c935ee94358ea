"""Trade-offs between two metrics, and what a metric's whole consists of: charts and tables of a point's page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from paceline.analysis.points import Point
from paceline.base.families.family import load_family
from paceline.base.units import format_quantity
from paceline.report.boards.page import Chart, estimate
from paceline.report.charts import large
from paceline.report.html import Grid, rows_grid
from paceline.report.layout import FrontierSpec, SplitSpec, layout_of
from paceline.report.points.equal_cost import Place, equal_cost
from paceline.report.tables.results import value_text
from paceline.report.words.estimates import band
from paceline.report.words.names import metric_label
from paceline.stats.estimates import median

MIN_DOTS = 2
BEYOND = 1.05
"""Parts that exceed their whole by less are as long as it."""


def frontier(values: Iterable[tuple[float, float]], *, rising: bool = False) -> list[tuple[float, float]]:
    """Return the pairs that no other pair beats in both values, from left to right.

    Lower is better; with ``rising`` higher is, of the second value.
    """
    sign = -1 if rising else 1
    found: list[tuple[float, float]] = []
    for x, y in sorted((x, sign * y) for x, y in set(values)):
        if not found or y < found[-1][1]:
            found.append((x, y))
    return [(x, sign * y) for x, y in found]


def frontier_charts(point: Point, names: Sequence[str]) -> list[Chart]:
    """Return a chart for each trade-off of the family that at least two techniques have both values of."""
    found = []
    colour = large.colours(names, point.baseline)
    for spec in _drawn(point):
        placed = _placed(point, spec)
        dots = [
            large.Dot(
                name=label,
                colour=colour[label],
                x=_triple(point, label, spec.across),
                y=_triple(point, label, spec.up),
            )
            for label, pair in placed.items()
            if min(pair) > 0
        ]
        if len(dots) < MIN_DOTS:
            continue
        rising = _rising(point, spec)
        best = [pair for pair in frontier(placed.values(), rising=rising) if min(pair) > 0]
        units = [_unit(point, spec.across), _unit(point, spec.up)]
        across, up = metric_label(spec.across), metric_label(spec.up)
        graphic = large.frontier_chart(
            dots,
            best,
            title=f"{up} against {across}, by technique, with the frontier",
            x_name=across,
            y_name=up,
            x_format=partial(_text, units[0]),
            y_format=partial(_text, units[1]),
            binary=units[0] == "B",
            rising=rising,
            beneath=(spec.beneath or "", _curve(point, spec)),
        )
        better = "higher" if rising else "lower"
        title = f"{up} against {across}: {better} and further left is better"
        found.append(Chart(title=title, graphic=graphic))
    return found


def frontier_grid(point: Point) -> Grid:
    """Return the numbers behind the charts, and which techniques no other beats in both."""
    rows = []
    for spec in _drawn(point):
        placed = _placed(point, spec)
        if sum(min(pair) > 0 for pair in placed.values()) < MIN_DOTS:
            continue
        best = set(frontier(placed.values(), rising=_rising(point, spec)))
        for label in sorted(placed, key=lambda name: placed[name]):
            x, y = (value_text(point, label, name) for name in (spec.across, spec.up))
            rows.append(
                [label, f"{spec.up} against {spec.across}", x, y, "yes" if placed[label] in best else "no"]
            )
    headers = ("technique", "trade-off", "across", "up", "on the frontier")
    return rows_grid("trade-offs", headers, rows)


def equal_grid(point: Point) -> Grid:
    """Return what a curve that is known whole costs where it is worth as much as each technique."""
    rows = []
    for spec in _drawn(point):
        curves = _curves(point, spec)
        for label in sorted(_placed(point, spec)) if curves else []:
            kept = [m for (name, _), cell in point.cells.items() if name == label for m in cell.measurements]
            if any((m.absent or {}).get(spec.apart) == spec.apart_reason for m in kept):
                rows.append([label, spec.up, f"not comparable: {spec.apart_reason}"])
                continue
            across, up = (point.cells[(label, name)].values for name in (spec.across, spec.up))
            own = {launch: (across[launch], up[launch]) for launch in set(across) & set(up)}
            found = equal_cost(own, curves)
            if found is not None:
                rows.append([label, spec.up, found.text()])
    named = {s.beneath_name for s in _drawn(point) if s.beneath}
    name = ", ".join(sorted(named)) or "curve"
    return rows_grid(
        "costs at equal worth", ("technique", "at equal", f"a {name} costs, over the technique"), rows
    )


def split_charts(point: Point) -> list[Chart]:
    """Return a chart for each split of the family of which some technique has a part."""
    found = []
    for spec in layout_of(point.family).splits:
        bars = [large.Bar(name=label, parts=_parts(point, label, spec)) for label in point.labels]
        bars = [b for b in bars if sum(b.parts) > 0]
        if not bars:
            continue
        unit = next(_unit(point, part) for part in spec.parts if _has(point, part))
        graphic = large.split_chart(
            bars,
            spec.parts,
            title=f"parts of {spec.title}, by technique",
            x_name=spec.title,
            x_format=partial(_text, unit),
            binary=unit == "B",
        )
        note = _beyond(point, spec, unit)
        found.append(Chart(title=f"Parts of {spec.title}", graphic=graphic, note=note))
    return found


def _beyond(point: Point, spec: SplitSpec, unit: str) -> str:
    """Name the techniques whose parts exceed the whole by more than rounding, with both, and say why they can."""
    if spec.whole is None or not _has(point, spec.whole):
        return ""
    named = []
    for label in point.labels:
        parts = sum(_parts(point, label, spec))
        whole = _value(point, label, spec.whole) if (label, spec.whole) in point.cells else parts
        if parts > BEYOND * whole:
            named.append(f"{label} ({_text(unit, parts)} of {_text(unit, whole)})")
    return (
        f"Longer than {spec.title}: {', '.join(named)}. {spec.apart[:1].upper()}{spec.apart[1:]}."
        if named
        else ""
    )


def _drawn(point: Point) -> list[FrontierSpec]:
    """Return the family's trade-offs but those that another metric of the point makes superfluous."""
    specs = layout_of(point.family).frontiers
    return [spec for spec in specs if not (spec.unless and _has(point, spec.unless))]


def _placed(point: Point, spec: FrontierSpec) -> dict[str, tuple[float, float]]:
    """Return both values of the techniques that have them; what is zero beats others, though it is not drawn."""
    names = (spec.across, spec.up)
    return {
        label: (_value(point, label, spec.across), _value(point, label, spec.up))
        for label in point.labels
        if all((label, name) in point.cells and _value(point, label, name) >= 0 for name in names)
    }


def _rising(point: Point, spec: FrontierSpec) -> bool:
    return load_family(point.family).metric(spec.up).better == "higher"


def _curves(point: Point, spec: FrontierSpec) -> dict[int, list[Place]]:
    """Return the curve beneath by launch; all techniques of a launch have the same."""
    if spec.beneath is None:
        return {}
    found: dict[int, list[Place]] = {}
    for cell in point.cells.values():
        for m in cell.measurements:
            kept: Mapping[str, Any] = m.accounting or {}
            if (curve := kept.get(spec.beneath)) and m.launch not in found:
                found[m.launch] = list(zip(curve[spec.across], curve[spec.up], strict=True))
    return found


def _curve(point: Point, spec: FrontierSpec) -> list[tuple[float, float]]:
    """Return the curve beneath, each of its places the median over launches."""
    if spec.beneath is None:
        return []
    kept: list[Mapping[str, Any]] = [
        m.accounting or {} for cell in point.cells.values() for m in cell.measurements
    ]
    found = [curve for accounting in kept if (curve := accounting.get(spec.beneath))]
    columns = [list(zip(*(c[name] for c in found), strict=False)) for name in (spec.across, spec.up)]
    return [(median(xs), median(ys)) for xs, ys in zip(*columns, strict=True)]


def _parts(point: Point, label: str, spec: SplitSpec) -> tuple[float, ...]:
    return tuple(
        max(_value(point, label, part), 0.0) if (label, part) in point.cells else 0.0 for part in spec.parts
    )


def _text(unit: str, value: float) -> str:
    return format_quantity(value, unit)


def _has(point: Point, metric: str) -> bool:
    return any((label, metric) in point.cells for label in point.labels)


def _unit(point: Point, metric: str) -> str:
    return next(point.cells[(label, metric)].unit for label in point.labels if (label, metric) in point.cells)


def _value(point: Point, label: str, metric: str) -> float:
    return estimate(point, label, metric).value


def _triple(point: Point, label: str, metric: str) -> tuple[float, float | None, float | None]:
    return band(estimate(point, label, metric), load_family(point.family).metric(metric).range_of_values)
