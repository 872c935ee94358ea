"""Sweeps of a board: a metric over a size, another number or the rate of links, and where techniques overtake."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from paceline.analysis.compare import Comparison
from paceline.analysis.points import Point
from paceline.base.families.family import load_family
from paceline.base.units import format_quantity
from paceline.report.boards.page import Chart, estimate
from paceline.report.boards.standing import Board
from paceline.report.charts import large, zoom
from paceline.report.html import Grid, rows_grid
from paceline.report.layout import layout_of
from paceline.report.tables.results import format_param, primary_metric, value_text, varying_params
from paceline.report.words.estimates import ABSENT, band
from paceline.report.words.names import metric_label, param_label

LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Points of a board that differ in one parameter alone."""

    swept: str
    rest: str
    """What they have in common, in words; empty when it is nothing."""
    points: tuple[Point, ...]
    """By the place on the sweep."""


def sweeps_of(board: Board) -> list[Sweep]:
    """Cut a board's points into sweeps over the first parameter with enough numbers, or over the rate of links."""
    points = [p for p in board.points if p.cells]
    keys = varying_params(points) if points else []
    swept = _swept_parameter(points, keys)
    if swept is None:
        return []
    others = [k for k in keys if k != swept]
    groups: dict[str, list[Point]] = {}
    for point in points:
        rest = ", ".join(
            [*(f"{k} {format_param(k, point.params.get(k))}" for k in others), *_delay(point, swept)]
        )
        groups.setdefault(rest, []).append(point)
    found = []
    for rest, group in groups.items():
        placed = sorted(
            (p for p in group if place(p, swept) is not None), key=lambda p: place(p, swept) or 0.0
        )
        if len({place(p, swept) for p in placed}) >= 2:
            found.append(Sweep(swept=swept, rest=rest, points=tuple(placed)))
    return found


def sweep_charts(board: Board, metrics: Sequence[str] = ()) -> list[Chart]:
    """Return charts of metrics, one for each sweep.

    Args:
        board: The points.
        metrics: What is drawn; empty means the primary metric, and those that the family wants drawn.
    """
    swept = sweeps_of(board)
    if not swept:
        return []
    names = sorted({label for p in board.points for label in p.labels})
    colour = large.colours(names, board.points[0].baseline)
    found = []
    for metric in metrics or _metrics(board):
        for sweep in swept:
            series = [s for name in names if (s := _series(sweep, name, metric, colour[name]))]
            if series and len({x for s in series for x, *_ in s.points}) >= 2:
                found.append(_chart(sweep, metric, series))
    return found


def load_charts(board: Board) -> list[Chart]:
    """Return charts of how slow techniques are at what they give: one for each pair of the family and each sweep.

    A line joins a technique's points in the order of the sweep, which need not be that of either metric.
    """
    names = sorted({label for p in board.points for label in p.labels})
    found = []
    for sweep in sweeps_of(board):
        for across, up in layout_of(board.family).loads:
            colour = large.colours(names, board.points[0].baseline)
            series = [
                large.Swept(name=n, colour=colour[n], points=tuple((x, y, None, None) for _, x, y in line))
                for n in names
                if len(line := _joined(sweep, n, across, up)) >= 2
            ]
            if series:
                found.append(_load_chart(sweep, across, up, series))
    return found


def load_grid(board: Board) -> Grid:
    """Return the numbers behind these charts, with their intervals."""
    rows = []
    for sweep in sweeps_of(board):
        for across, up in layout_of(board.family).loads:
            for label in sorted({label for p in sweep.points for label in p.labels}):
                for point, *_ in _joined(sweep, label, across, up):
                    at = place_name(sweep.swept, place(point, sweep.swept) or 0.0)
                    told = [value_text(point, label, m) for m in (across, up)]
                    rows.append(
                        [label, f"{sweep.swept} {at}", sweep.rest or ABSENT, across, told[0], up, told[1]]
                    )
    headers = ("technique", "at", "rest", "across", "gives", "up", "is")
    return rows_grid("what is given, and how slowly", headers, rows)


def _joined(sweep: Sweep, label: str, across: str, up: str) -> list[tuple[Point, float, float]]:
    found = []
    for point in sweep.points:
        if (label, across) in point.cells and (label, up) in point.cells:
            x, y = (estimate(point, label, metric).value for metric in (across, up))
            if 0 < x < math.inf and 0 < y < math.inf:
                found.append((point, x, y))
    return found


def _load_chart(sweep: Sweep, across: str, up: str, series: Sequence[large.Swept]) -> Chart:
    units = [
        next(p.cells[(s.name, m)].unit for s in series for p in sweep.points if (s.name, m) in p.cells)
        for m in (across, up)
    ]
    shown_across, shown_up = metric_label(across), metric_label(up)
    title = f"{shown_up} against {shown_across} over {param_label(sweep.swept)}" + _rest(sweep)
    graphic = large.sweep_chart(
        series,
        title=f"{title}, of each technique",
        x_name=shown_across,
        y_name=shown_up,
        x_format=partial(_text, units[0]),
        y_format=partial(_text, units[1]),
        round_marks=True,
    )
    return Chart(title=title, graphic=graphic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Where along a sweep a technique is as good as the baseline, between two neighbouring points."""

    sweep: Sweep
    label: str
    metric: str
    better_beyond: bool
    """Whether the technique is the better one behind it."""
    at: float
    """Place on the sweep, interpolated in logarithms of place and ratio."""
    sides: tuple[Comparison, Comparison]
    """At the points before and behind it."""
    decided: str
    """``yes``, ``no``, or within what it lies."""

    @property
    def place(self) -> str:
        """The place as people write it."""
        return place_name(self.sweep.swept, self.at)


def crossing_grid(board: Board, comparisons: Sequence[Comparison]) -> Grid:
    """Return where along the sweeps a technique overtakes the baseline, or is overtaken."""
    rows = []
    for c in crossings_of(board, comparisons):
        ends = [place_name(c.sweep.swept, place(s.point, c.sweep.swept) or 0.0) for s in c.sides]
        beyond = "better" if c.better_beyond else "worse"
        rest = c.sweep.rest or ABSENT
        rows.append([c.label, c.metric, rest, beyond, c.place, " … ".join(ends), c.decided])
    rows.sort(key=lambda row: row[-1] == "no")
    headers = ("technique", "metric", "at", "beyond it", "crossing", "between", "decided")
    return rows_grid("where techniques cross the baseline", headers, rows)


def crossings_of(board: Board, comparisons: Sequence[Comparison]) -> Iterator[Crossing]:
    """Yield where along the sweeps a technique overtakes the baseline, or is overtaken.

    A crossing is ``decided`` when the ratio's interval is on one side of 1 at one point and on the other at the next;
    where points beside it are undecided, the nearest decided ones on either side say within what it lies.
    """
    effects = {(id(c.point), c.label, c.metric): c for c in comparisons if c.kind == "ratio"}
    for metric in _metrics(board):
        lower = load_family(board.family).metric(metric).better == "lower"
        for sweep in sweeps_of(board):
            for label in sorted({label for p in sweep.points for label in p.labels}):
                places = [
                    (x, effects[(id(p), label, metric)])
                    for p in sweep.points
                    if (id(p), label, metric) in effects and (x := place(p, sweep.swept)) is not None
                ]
                yield from _crossings(sweep, label, metric, places, lower=lower)


def _crossings(
    sweep: Sweep, label: str, metric: str, places: Sequence[tuple[float, Comparison]], *, lower: bool
) -> Iterator[Crossing]:
    for number, ((x0, c0), (x1, c1)) in enumerate(pairwise(places)):
        r0, r1 = c0.effect.value, c1.effect.value
        if math.isfinite(r0) and math.isfinite(r1) and min(r0, r1) > 0 and (r0 < 1) != (r1 < 1):
            yield Crossing(
                sweep=sweep,
                label=label,
                metric=metric,
                better_beyond=(r1 < 1) == lower,
                at=crossing(x0, r0, x1, r1),
                sides=(c0, c1),
                decided=_decided_within(sweep.swept, places, number),
            )


def _decided_within(swept: str, places: Sequence[tuple[float, Comparison]], number: int) -> str:
    """Say between which places a crossing is certain to lie: the nearest on either side whose intervals leave out 1."""
    if _decided(places[number][1]) and _decided(places[number + 1][1]):
        return "yes"
    before = next(((x, c) for x, c in reversed(places[: number + 1]) if _decided(c)), None)
    behind = next(((x, c) for x, c in places[number + 1 :] if _decided(c)), None)
    if before is None or behind is None or (before[1].effect.value < 1) == (behind[1].effect.value < 1):
        return "no"
    return f"within {place_name(swept, before[0])} … {place_name(swept, behind[0])}"


def crossing(x0: float, r0: float, x1: float, r1: float) -> float:
    """Return where a ratio is 1 between two places, on straight lines in logarithms."""
    share = math.log(r0) / (math.log(r0) - math.log(r1))
    return math.exp(math.log(x0) + share * (math.log(x1) - math.log(x0)))


def place(point: Point, key: str) -> float | None:
    """Return a point's place on a sweep: the number itself, or the rate of its link in bytes per second."""
    value = point.params.get(key)
    if key == LINK:
        link = (point.run.runner.get("links") or {}).get(str(value)) or {}
        rate = link.get("rate_bytes_per_s")
        return float(rate) if rate else None
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    return None


def _delay(point: Point, swept: str) -> list[str]:
    """Name a link's delay on a sweep over rates: links of one rate and different delays are no sweep."""
    link = (point.run.runner.get("links") or {}).get(str(point.params.get(LINK))) or {}
    delay = link.get("delay_s")
    return [f"delay {format_quantity(float(delay), 's')}"] if swept == LINK and delay else []


def _metrics(board: Board) -> list[str]:
    """Return the metrics that are drawn over sweeps: the primary one, and those that the family wants."""
    points = [p for p in board.points if p.cells]
    if not points:
        return []
    return list(dict.fromkeys([primary_metric(points), *layout_of(board.family).swept]))


def _decided(c: Comparison) -> bool:
    low, high = c.effect.low, c.effect.high
    return low is not None and high is not None and not low <= 1 <= high


def _swept_parameter(points: Sequence[Point], keys: Sequence[str]) -> str | None:
    for key in keys:
        values = [p.params.get(key) for p in points]
        places = {x for p in points if (x := place(p, key)) is not None}
        enough = 2 if key in ("size_bytes", LINK) else 3
        if len(places) >= enough and (key == LINK or len(places) == len(set(values))):
            return key
    return None


def _series(sweep: Sweep, label: str, metric: str, colour: str) -> large.Swept | None:
    places = []
    for point in sweep.points:
        x = place(point, sweep.swept)
        if x is not None and (label, metric) in point.cells:
            e = estimate(point, label, metric)
            if e.value > 0 and math.isfinite(e.value):
                places.append((x, *band(e, load_family(point.family).metric(metric).range_of_values)))
    return large.Swept(name=label, colour=colour, points=tuple(places)) if places else None


def _chart(sweep: Sweep, metric: str, series: Sequence[large.Swept]) -> Chart:
    unit = next(
        p.cells[(s.name, metric)].unit for s in series for p in sweep.points if (s.name, metric) in p.cells
    )
    title = f"{metric_label(metric)} over {param_label(sweep.swept)}" + _rest(sweep)
    graphic = large.sweep_chart(
        series,
        title=f"{title}: value of each technique, and its 95 % interval or the range of up to three launches",
        x_name="rate of each rank's link" if sweep.swept == LINK else param_label(sweep.swept),
        y_name=metric_label(metric),
        x_format=partial(place_name, sweep.swept),
        y_format=partial(_text, unit),
        binary=unit == "B",
    )
    plot = zoom.swept_plot(
        series, x=_place_unit(sweep.swept), y=(metric, unit), baseline=sweep.points[0].baseline
    )
    return Chart(title=title, graphic=graphic, plot=plot)


def _rest(sweep: Sweep) -> str:
    return f" · {sweep.rest}" if sweep.rest else ""


def _place_unit(swept: str) -> tuple[str, str, float]:
    """Return name and unit of a sweep's places, and how many of the unit a place of 1 is."""
    if swept == LINK:
        return "rate of each rank's link", "bit/s", 8.0
    return swept, "B" if swept.endswith("_bytes") else "", 1.0


def place_name(swept: str, value: float) -> str:
    """Write a place on a sweep for people."""
    if swept == LINK:
        return format_quantity(value * 8, "bit/s")
    whole = swept.endswith("_bytes") or value >= 100 or value == round(value)
    return format_param(swept, round(value) if whole else float(f"{value:.3g}"))


def _text(unit: str, value: float) -> str:
    return format_quantity(value, unit)
