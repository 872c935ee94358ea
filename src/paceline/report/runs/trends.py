"""What the pages of trends show: series over their nights, the nights from which on they are another, and alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from paceline.analysis.changes import LEAST_LEVEL, Change
from paceline.analysis.lateness import Busy, Late
from paceline.analysis.points import compared
from paceline.analysis.trend import Alert, History, Night, alerts, histories
from paceline.base.counting import number_of
from paceline.base.families.family import load_family
from paceline.base.units import format_quantity
from paceline.records.origin.ancestry import IsAncestor, unknown
from paceline.records.store.folder import Loaded
from paceline.report.boards.page import Chart, point_name
from paceline.report.boards.standing import Board
from paceline.report.charts import zoom
from paceline.report.charts.svg import TICKS, WIDTH, Axis, svg, text, thin, x_marks, y_grid
from paceline.report.html import Cell, Grid, rows_grid
from paceline.report.tables.results import Table, varying_params
from paceline.report.words.estimates import ABSENT, ends_of_value, format_estimate
from paceline.stats.estimates import Estimate

LEFT, TOP, BOTTOM = 84.0, 34.0, 236.0
MANY_DOTS = 120
"""Above so many nights dots would hide the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """All series of one point of a board that two runs or more measured."""

    board: Board
    name: str
    href: str
    """Its page, from the site's root."""
    case_href: str
    series: tuple[History, ...]

    @property
    def num_nights(self) -> int:
        """Nights of the longest series."""
        return max(len(h.nights) for h in self.series)

    @property
    def days(self) -> tuple[str, str]:
        """First and last day."""
        days = sorted(n.started[:10] for h in self.series for n in (h.nights[0], h.nights[-1]))
        return days[0], days[-1]


def trends_of(board: Board, is_ancestor: IsAncestor = unknown) -> list[Trend]:
    """Return the trends of a board's points, for the metrics that its suite compares.

    Args:
        board: Points with all their measurements.
        is_ancestor: What is known of the runs' commits.
    """
    keys = varying_params(board.points)
    found = []
    for point, measured in zip(board.points, board.history, strict=True):
        metrics = list(compared(point.run, point.suite))
        series = histories(measured, metrics, is_ancestor) if len(measured) > 1 else []
        if series:
            slug = board.point_slug(point)
            trend = Trend(
                board=board,
                name=point_name(point, keys),
                href=f"trends/{slug}.html",
                case_href=f"cases/{slug}.html",
                series=tuple(series),
            )
            found.append(trend)
    return found


def recent(trends: Sequence[Trend]) -> list[tuple[Trend, Alert]]:
    """Return the alerts of a site, each with the trend that it belongs to."""
    owners = {id(history): trend for trend in trends for history in trend.series}
    return [(owners[id(a.history)], a) for a in alerts(h for t in trends for h in t.series)]


def blindness(trends: Sequence[Trend]) -> str | None:
    """Say how many series are too young for a change to be found, or None where none is."""
    series = [h for t in trends for h in t.series]
    blind = sum(h.blind_nights > 0 for h in series)
    if not blind:
        return None
    return (
        f"In {blind} of {len(series)} series no change can be found yet: "
        f"a series, and each level after a change, needs {LEAST_LEVEL} nights first."
    )


def left_out(trends: Sequence[Trend]) -> list[str]:
    """Say, once for each run, which runs are no nights, and why; the newest first."""
    found = {(late.started, late.run_id): late.text for t in trends for h in t.series for late in h.left_out}
    return [found[key] for key in sorted(found, reverse=True)]


def driver_events(trends: Sequence[Trend]) -> list[str]:
    """Say, once for each run, which nights began with another driver of the accelerator."""
    found = {
        (
            h.nights[i].started,
            h.nights[i].run_id,
        ): f"{h.nights[i].started[:10]}: {text} ({t.board.host_class})"
        for t in trends
        for h in t.series
        for i, text in h.driver_changes.items()
    }
    return [found[key] for key in sorted(found, reverse=True)]


def format_change(history: History, change: Change) -> str:
    """Write a change's size: relative for what is compared by ratio, else in the unit."""
    size = history.size(change)
    slowly = ", slowly" if change.slow else ""
    if history.kind == "ratio":
        return f"{(size - 1) * 100:+.1f} %{slowly}"
    return ("+" if size > 0 else "") + format_quantity(size, history.unit) + slowly


def direction(history: History, change: Change) -> str:
    """Say what a change means: slower, faster, worse, better, or only that it changed."""
    if history.better not in ("lower", "higher"):
        return "changed"
    names = ("slower", "faster") if history.unit == "s" else ("worse", "better")
    return names[0] if history.worse(change) else names[1]


def alert_grid(found: Sequence[tuple[Trend, Alert]]) -> Grid:
    """Return the alerts, worst first."""
    rows: list[Sequence[Cell | str]] = []
    for trend, alert in found:
        history, change = alert.history, alert.change
        rows.append([*_subject(trend, history), *_event(history, change), f"{alert.q_value:.2g}"])
    headers = ("suite", "point", "technique", "metric", "since", "verdict", "change", "from", "to", "q")
    return rows_grid("alerts", headers, rows)


def change_grid(trends: Sequence[Trend]) -> Grid:
    """Return all changes, the newest first."""
    found = [(t, h, c) for t in trends for h in t.series for c in h.changes]
    found.sort(key=lambda f: f[1].nights[f[2].at].started, reverse=True)
    rows: list[Sequence[Cell | str]] = [
        [*_subject(t, h), *_event(h, c), f"{c.p_value:.2g}"] for t, h, c in found
    ]
    headers = ("suite", "point", "technique", "metric", "since", "verdict", "change", "from", "to", "p")
    return rows_grid("changes", headers, rows)


def _subject(trend: Trend, history: History) -> list[Cell | str]:
    return [
        Cell(text=trend.board.suite, kind="text"),
        Cell(text=trend.name, href=trend.href, kind="text broken"),
        Cell(text=history.label, kind="text"),
        Cell(text=history.metric, kind="text"),
    ]


def _event(history: History, change: Change) -> list[Cell | str]:
    verdict = direction(history, change) if history.matters(change) else "within the margin"
    colour = {"slower": "bad", "worse": "bad", "faster": "good", "better": "good"}.get(verdict, "quiet")
    return [
        Cell(text=history.nights[change.at].started[:10], kind="text"),
        Cell(text=verdict, kind=f"text verdict {colour}"),
        format_change(history, change),
        format_quantity(change.before, history.unit),
        format_quantity(change.after, history.unit),
    ]


def list_grid(trends: Sequence[Trend]) -> Grid:
    """Return a line for each point that was measured in several runs."""
    rows: list[Sequence[Cell | str]] = []
    for trend in trends:
        first, last = trend.days
        board = trend.board
        where = ", ".join(part for part in (board.runner, board.host_class, board.image_class) if part)
        rows.append(
            [
                Cell(text=board.suite, href=f"boards/{board.slug}.html", kind="text"),
                Cell(text=where, kind="text broken"),
                Cell(text=trend.name, href=trend.href, kind="text broken"),
                str(trend.num_nights),
                Cell(text=first, kind="text"),
                Cell(text=last, kind="text"),
                str(len(trend.series)),
                str(sum(len(h.changes) for h in trend.series)),
                Cell(text=_seen_from(trend), kind="text"),
            ]
        )
    return rows_grid(
        "series by point",
        ("suite", "measured on", "point", "nights", "first", "last", "series", "changes", "a change is seen"),
        rows,
    )


def _seen_from(trend: Trend) -> str:
    """Say from which night on a change in some series of a point can be found."""
    missing = min(h.blind_nights for h in trend.series)
    if missing:
        return f"after {number_of(missing, 'more night')}"
    longest = max(trend.series, key=lambda h: len(h.nights))
    return f"since {longest.nights[min(LEAST_LEVEL, len(longest.nights)) - 1].started[:10]}"


def trend_charts(trend: Trend, loaded: Loaded) -> list[Chart]:
    """Return a chart for each series of a point."""
    return [
        Chart(
            title=f"{h.metric} of {h.label}",
            graphic=trend_chart(h, _noted(h, loaded)),
            plot=zoom.nightly_plot(
                h.metric, h.unit, "s0", [(n.started[:10], (n.value, *_ends(n))) for n in h.nights]
            ),
        )
        for h in trend.series
    ]


def _estimate(night: Night) -> Estimate:
    return Estimate(
        value=night.value,
        low=night.low,
        high=night.high,
        method="",
        num_launches=night.launches,
        extremes=night.extremes,
    )


def _ends(night: Night) -> tuple[float | None, float | None]:
    """Return the ends that a chart draws of a night."""
    if night.low is not None and night.low == night.high:
        return night.low, night.high
    return ends_of_value(_estimate(night)).drawn()


def _noted(history: History, loaded: Loaded) -> list[int]:
    drivers = history.driver_changes
    return [i for i, night in enumerate(history.nights) if i in drivers or loaded.notes(night.run_id)]


def trend_chart(history: History, noted: Sequence[int] = ()) -> Markup:
    """Draw values with their intervals night by night, levels as dashed lines, and marks where a level begins.

    Args:
        history: A series.
        noted: Nights to which somebody added a note, or which began with another driver.
    """
    nights = history.nights
    ends = [v for n in nights for v in (n.value, *_ends(n)) if v is not None]
    pad = (max(ends) - min(ends)) * 0.08 or abs(max(ends)) * 0.02 or 1.0
    x = Axis(low=0, high=len(nights) - 1, begin=LEFT + 14, end=WIDTH - 44, log=False)
    y = Axis(low=min(ends) - pad, high=max(ends) + pad, begin=BOTTOM, end=TOP, log=False)
    parts = [y_grid(y, LEFT, WIDTH - 16, lambda v: format_quantity(v, history.unit))]
    marks = thin(range(len(nights)), TICKS - 1)
    parts.append(x_marks(x, marks, BOTTOM, lambda v: nights[round(v)].started[:10]))
    parts.append(_band(nights, x, y))
    line = "L".join(f"{x.at(i):.1f} {y.at(n.value):.1f}" for i, n in enumerate(nights))
    parts.append(f'<path class="line s0" d="M{line}"/>')
    if len(nights) <= MANY_DOTS:
        parts += [
            f'<circle class="dot s0" cx="{x.at(i):.1f}" cy="{y.at(n.value):.1f}" r="3"/>'
            for i, n in enumerate(nights)
        ]
    for number, change in enumerate(history.changes):
        end = history.changes[number + 1].at if number + 1 < len(history.changes) else len(nights)
        begin = history.changes[number - 1].at if number else 0
        for level, a, b in ((change.before, begin, change.at - 1), (change.after, change.at, end - 1)):
            drawn = y.at(level)
            parts.append(f'<path class="frontier" d="M{x.at(a):.1f} {drawn:.1f}H{x.at(b):.1f}"/>')
        place = x.at(change.at)
        parts.append(f'<path class="axis" d="M{place:.1f} {TOP:.0f}V{BOTTOM:.0f}"/>')
        side = "end" if place > WIDTH - 120 else "start"
        words = f"{direction(history, change)} {format_change(history, change)}"
        parts.append(
            text(place + (-5 if side == "end" else 5), TOP + 8 + 14 * (number % 3), words, "tick", side)
        )
    parts += [text(x.at(i), BOTTOM - 6, "✎", "tick", "middle") for i in noted]
    return svg(
        f"{history.metric} of {history.label} over {number_of(len(nights), 'night')}", BOTTOM + 32, parts
    )


def _band(nights: Sequence[Night], x: Axis, y: Axis) -> str:
    drawn = [(i, *_ends(n)) for i, n in enumerate(nights)]
    known = [(i, low, high) for i, low, high in drawn if low is not None and high is not None]
    if len(known) < 2:
        return ""
    upper = [f"{x.at(i):.1f} {y.at(high):.1f}" for i, _, high in known]
    lower = [f"{x.at(i):.1f} {y.at(low):.1f}" for i, low, _ in reversed(known)]
    return f'<path class="band s0" d="M{"L".join([*upper, *lower])}Z"/>'


def night_grid(trend: Trend, loaded: Loaded, run_hrefs: Mapping[str, str]) -> Grid:
    """Return the numbers behind the charts, the newest night first."""
    rows: list[Sequence[Cell | str]] = []
    for history in trend.series:
        bounds = load_family(trend.board.family).metric(history.metric).range_of_values
        begun = {c.at: f"{direction(history, c)} {format_change(history, c)}" for c in history.changes}
        rows += [_late_row(history, late, run_hrefs) for late in reversed(history.left_out)]
        for i in range(len(history.nights) - 1, -1, -1):
            night = history.nights[i]
            estimate = _estimate(night)
            happened = [told[i] for told in (begun, history.driver_changes) if i in told]
            said = [*happened, *(n.text for n in loaded.notes(night.run_id))]
            rows.append(
                [
                    Cell(text=history.label, kind="text technique"),
                    Cell(text=history.metric, kind="text"),
                    Cell(
                        text=night.started[:16].replace("T", " "),
                        href=run_hrefs.get(night.run_id),
                        kind="text",
                    ),
                    format_estimate(estimate, history.unit, bounds),
                    str(night.launches),
                    Cell(text="; ".join(said) or ABSENT, kind="text prose"),
                ]
            )
    headers = ("technique", "metric", "night", "value ± interval", "n", "what happened")
    return rows_grid(f"{trend.board.suite}, {trend.name}", headers, rows)


def _late_row(history: History, late: Late | Busy, run_hrefs: Mapping[str, str]) -> list[Cell | str]:
    return [
        Cell(text=history.label, kind="text technique"),
        Cell(text=history.metric, kind="text"),
        Cell(text=late.started[:16].replace("T", " "), href=run_hrefs.get(late.run_id), kind="text"),
        ABSENT,
        ABSENT,
        Cell(text=f"left out: {late.why}", kind="text prose"),
    ]


def narrowed(trends: Sequence[Trend], *, technique: str | None, metric: str | None) -> list[Trend]:
    """Return trends with the series of one technique or metric alone."""
    kept = [
        replace(
            t,
            series=tuple(h for h in t.series if technique in (None, h.label) and metric in (None, h.metric)),
        )
        for t in trends
    ]
    return [t for t in kept if t.series]


def tables(trends: Sequence[Trend], found: Sequence[tuple[Trend, Alert]]) -> list[Table]:
    """Return what a terminal shows: alerts and all changes, without those that did not happen."""
    grids = [grid for grid in (alert_grid(found), change_grid(trends)) if grid.groups]
    return [
        Table(
            title=grid.title,
            headers=tuple(h.text for h in grid.headers),
            rows=tuple(tuple(c.text for c in row) for rows in grid.groups for row in rows),
            leaving=("q", "p", "from", "to"),
        )
        for grid in grids
    ]
