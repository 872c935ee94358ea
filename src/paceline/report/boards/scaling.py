"""How a work of one size gets faster with more ranks: speed-up and efficiency of each technique, with intervals.

Points with different numbers of ranks are blocks of their own, so their launches are not paired: intervals are Welch's
on logarithms, wider than those of techniques that ran interleaved.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from paceline.analysis.points import Point
from paceline.base.families.family import NOT_NEGATIVE
from paceline.report.boards.page import Chart
from paceline.report.boards.standing import Board
from paceline.report.charts import large, zoom
from paceline.report.html import Grid, rows_grid
from paceline.report.layout import layout_of
from paceline.report.tables.results import format_param, varying_params
from paceline.report.words.estimates import ABSENT, band, format_estimate
from paceline.stats.estimates import Estimate
from paceline.stats.unpaired import compare_unpaired

RANKS = "ranks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """One technique at one number of ranks, against itself at the fewest."""

    metric: str
    rest: str
    """What the points have in common beside the ranks, in words."""
    label: str
    ranks: int
    fewest: int
    point: Point
    speedup: Estimate
    """Time at the fewest ranks over time here."""

    @property
    def efficiency(self) -> Estimate:
        """Speed-up a rank, as a share of what it was at the fewest."""
        share = self.fewest / self.ranks
        ends = (None if end is None else end * share for end in (self.speedup.low, self.speedup.high))
        low, high = ends
        extremes = self.speedup.extremes
        return replace(
            self.speedup,
            value=self.speedup.value * share,
            low=low,
            high=high,
            extremes=None if extremes is None else (extremes[0] * share, extremes[1] * share),
        )


def scaled(board: Board) -> list[Scaled]:
    """Return all techniques at all numbers of ranks at which they can be set against themselves, in order."""
    metrics = layout_of(board.family).scaled if board.points else ()
    return [
        one for metric in metrics for group in _groups(board.points) for one in _one_group(metric, *group)
    ]


def scaling_grid(board: Board) -> Grid:
    """Return speed-up and efficiency of each technique."""
    rows = []
    for one in scaled(board):
        cores = _cores(one.point)
        rows.append(
            [
                one.rest or ABSENT,
                one.label,
                str(one.ranks),
                ABSENT if cores is None else f"{min(1.0, cores / one.ranks):.2g}",
                format_estimate(one.point.estimate(one.label, one.metric), "s"),
                format_estimate(one.speedup, "ratio", NOT_NEGATIVE),
                format_estimate(one.efficiency, "ratio", NOT_NEGATIVE),
            ]
        )
    headers: tuple[str, ...] = (
        "point",
        "technique",
        "ranks",
        "cores a rank",
        "time",
        "speed-up",
        "efficiency",
    )
    if all(row[0] == ABSENT for row in rows):
        headers, rows = headers[1:], [row[1:] for row in rows]
    return rows_grid("speed-up and efficiency over ranks", headers, rows)


def scaling_charts(board: Board) -> list[Chart]:
    """Return a chart of efficiency for each group of points that differ in ranks alone."""
    found: dict[tuple[str, str], list[Scaled]] = {}
    for one in scaled(board):
        found.setdefault((one.metric, one.rest), []).append(one)
    colour = large.colours(
        sorted({label for p in board.points for label in p.labels}),
        board.points[0].baseline if board.points else "",
    )
    return [_chart(metric, rest, members, colour) for (metric, rest), members in found.items()]


def _chart(metric: str, rest: str, members: Sequence[Scaled], colour: dict[str, str]) -> Chart:
    fewest = members[0].fewest
    series = []
    for label in sorted({m.label for m in members}):
        own = [(m.ranks, m.efficiency) for m in members if m.label == label]
        places = [(float(n), *band(e)) for n, e in own]
        series.append(
            large.Swept(name=label, colour=colour[label], points=((float(fewest), 1.0, 1.0, 1.0), *places))
        )
    title = f"efficiency over ranks, by {metric}" + (f" · {rest}" if rest else "")
    graphic = large.sweep_chart(
        series,
        title=f"{title}: value of each technique, and its 95 % interval or the range of up to three launches",
        x_name=RANKS,
        y_name="efficiency",
        x_format=lambda v: f"{v:g}",
        y_format=lambda v: f"{v:.2g}",
    )
    plot = zoom.swept_plot(series, x=(RANKS, "", 1.0), y=("efficiency", "ratio"))
    return Chart(title=title, graphic=graphic, plot=plot)


def _groups(points: Sequence[Point]) -> Iterator[tuple[str, dict[int, Point]]]:
    """Yield points that differ in nothing but their ranks: what they share in words, and the points by ranks."""
    names = [key for key in varying_params([p for p in points if p.cells]) if key != RANKS]
    found: dict[str, tuple[str, dict[int, Point]]] = {}
    for point in points:
        ranks = point.params.get(RANKS)
        if not point.cells or not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1:
            continue
        key = json.dumps({k: v for k, v in point.params.items() if k != RANKS}, sort_keys=True, default=str)
        words = ", ".join(f"{name} {format_param(name, point.params.get(name))}" for name in names)
        found.setdefault(key, (words, {}))[1][ranks] = point
    yield from ((words, group) for words, group in found.values() if len(group) > 1)


def _one_group(metric: str, rest: str, group: dict[int, Point]) -> Iterator[Scaled]:
    for label in sorted({label for point in group.values() for label in point.labels}):
        have = sorted(n for n, point in group.items() if (label, metric) in point.cells)
        for ranks in have[1:]:
            sides = (group[n].cells[(label, metric)].launches for n in (have[0], ranks))
            speedup = compare_unpaired(*sides)
            if not math.isfinite(speedup.value) or speedup.value <= 0:
                continue
            yield Scaled(
                metric=metric,
                rest=rest,
                label=label,
                ranks=ranks,
                fewest=have[0],
                point=group[ranks],
                speedup=speedup,
            )


def _cores(point: Point) -> int | None:
    """Return how many cores the ranks had together; None when they were on several hosts, or nobody wrote it down."""
    cores = (point.run.host or {}).get("usable_cores")
    one_host = (
        str(point.run.runner.get("driver")) in ("local", "docker") and point.run.runner.get("device") == "cpu"
    )
    return int(cores) if one_host and isinstance(cores, int) else None
