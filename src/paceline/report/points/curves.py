"""Curves over a run: what a family stored in ``accounting.curve``, drawn and listed on a point's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.analysis.points import Point
from paceline.base.units import format_quantity
from paceline.records.format.record import Measurement
from paceline.report.boards.page import Chart
from paceline.report.charts import large, zoom
from paceline.report.charts.load import share_chart
from paceline.report.html import Grid, rows_grid
from paceline.report.layout import CurveSpec, layout_of
from paceline.report.words.estimates import ABSENT
from paceline.stats.estimates import median

Curve = list[tuple[float, float]]
"""(x, y), both medians over launches, in the order of the run."""
Columns = Mapping[str, list[float]]
"""Name → values of what one launch stored."""


def curve_charts(point: Point, names: Sequence[str]) -> list[Chart]:
    """Return a chart for each curve of the family and each axis over which some technique has one."""
    colour = large.colours(names, point.baseline)
    found: list[Chart] = []
    launches = _launches(point)
    for spec in layout_of(point.family).curves:
        for axis, unit in spec.over:
            drawn = [
                large.Swept(
                    name=label,
                    colour=colour[label],
                    points=tuple((x, y, None, None) for x, y in curve if x > 0 and y > 0),
                )
                for label in point.labels
                if len(curve := _curve(launches[label], spec, axis)) >= 2
            ]
            drawn = [s for s in drawn if len(s.points) >= 2]
            if drawn:
                found.append(_chart(drawn, spec, axis, unit, point.baseline))
    return found


def are_shares(point: Point) -> bool:
    """Return whether what is drawn are distributions, and no curves."""
    return all(spec.cumulative for spec in layout_of(point.family).curves)


def curve_grid(point: Point) -> Grid:
    """Return the numbers behind the charts: a row for each technique and evaluation, with what is known of it."""
    rows = []
    headers: tuple[str, ...] = ()
    launches = _launches(point)
    for spec in layout_of(point.family).curves:
        for label in point.labels:
            columns = [_curve(launches[label], spec, axis) for axis, _ in spec.over]
            if not any(columns):
                continue
            headers = ("technique", *(axis for axis, _ in spec.over), spec.quantity)
            longest = max(columns, key=len)
            for number, (_, y) in enumerate(longest):
                at = [
                    format_quantity(c[number][0], unit) if number < len(c) else ABSENT
                    for c, (_, unit) in zip(columns, spec.over, strict=True)
                ]
                rows.append([label, *at, format_quantity(y, spec.unit)])
    return rows_grid("medians over launches at each evaluation", headers, rows)


def _launches(point: Point) -> dict[str, list[Columns]]:
    """Return what the launches of each technique stored: looked for once, and not for each axis of each curve."""
    found: dict[str, list[Columns]] = {label: [] for label in point.labels}
    for (label, _), cell in point.cells.items():
        found[label] += filter(None, map(_columns, cell.measurements))
    return found


def _curve(stored: Sequence[Columns], spec: CurveSpec, axis: str) -> Curve:
    launches = [columns for columns in stored if columns.keys() >= {spec.quantity, axis}]
    if not launches:
        return []
    length = min(len(curve[spec.quantity]) for curve in launches)
    return [
        (median([c[axis][i] for c in launches]), median([c[spec.quantity][i] for c in launches]))
        for i in range(length)
    ]


def _columns(m: Measurement) -> dict[str, list[float]]:
    curve = (m.accounting or {}).get("curve") or {}
    return {name: column for name, column in curve.items() if isinstance(column, list)}


def _chart(drawn: list[large.Swept], spec: CurveSpec, axis: str, unit: str, baseline: str) -> Chart:
    if spec.cumulative:
        shares = share_chart(
            drawn,
            title=f"distribution of {spec.quantity}, by technique",
            x_name=spec.quantity,
            y_name=f"{axis.replace('_', ' ')} at or below",
            x_format=lambda v: format_quantity(v, spec.unit),
        )
        return Chart(title=f"Distribution of {spec.quantity}", graphic=shares)
    graphic = large.sweep_chart(
        drawn,
        title=f"{spec.quantity} over {axis}, by technique",
        x_name=axis,
        y_name=spec.quantity,
        x_format=lambda v: format_quantity(v, unit),
        y_format=lambda v: format_quantity(v, spec.unit),
        round_marks=True,
    )
    # curves of two techniques are seldom at the same place, so none is shown relative to another's
    aligned = len({tuple(x for x, *_ in s.points) for s in drawn}) == 1
    plot = zoom.swept_plot(
        drawn, x=(axis, unit, 1.0), y=(spec.quantity, spec.unit), baseline=baseline if aligned else None
    )
    return Chart(title=f"{spec.quantity} over {axis}", graphic=graphic, plot=plot)
