"""What each rank did in one step: ``accounting.timeline`` of a technique, drawn for a point's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from paceline.analysis.points import Point
from paceline.base.units import format_quantity
from paceline.records.format.parts import Timeline
from paceline.report.boards.page import Chart
from paceline.report.charts.svg import WIDTH, Axis, svg, text, x_marks
from paceline.report.html import Grid, rows_grid

KINDS: Mapping[str, tuple[str, str]] = {
    "F": ("s0", "forward"),
    "B": ("s1", "backward"),
    "I": ("s4", "backward to inputs"),
    "W": ("s2", "backward to weights"),
    "C": ("s3", "communication"),
}
IDLE = "idle"
ROW, GAP = 20.0, 4.0
LEAST_TEXT = 16.0
"""Pixels that a bar must have for its microbatch's number."""
LEFT = 84.0


def timeline_charts(point: Point) -> list[Chart]:
    """Return a chart for each technique that has a timeline, from its first launch."""
    return [
        Chart(title=f"One step of {label}", graphic=timeline_chart(label, rows))
        for label in point.labels
        if (rows := _timeline(point, label))
    ]


def timeline_grid(point: Point) -> Grid:
    """Return the numbers behind the charts: for each rank the seconds of passes and messages, and what is left."""
    found = []
    for label in point.labels:
        for row in _timeline(point, label):
            end = _end([row])
            for rank, bars in enumerate(row["ranks"]):
                kinds = {kind: sum(e - b for k, _, _, b, e in bars if k == kind) for kind in KINDS}
                idle = end - sum(kinds.values())
                seconds = [format_quantity(v, "s") if v else "–" for v in (*kinds.values(), idle)]
                found.append([label, row["title"], str(rank), *seconds])
    return rows_grid(
        "timelines", ("technique", "time", "rank", *(name for _, name in KINDS.values()), IDLE), found
    )


def timeline_chart(label: str, rows: Sequence[Timeline]) -> Markup:
    """Draw ranks below one another, time to the right, for each title (simulated, measured) on one scale.

    Numbers in bars are microbatches; the second stage of a rank and those after it are paler. Where there is no bar a
    rank has nothing to do.
    """
    axis = Axis(low=0, high=_end(rows), begin=LEFT, end=WIDTH - 16, log=False)
    parts = _legend(rows)
    y = 32.0
    for row in rows:
        parts.append(text(12, y + 12, row["title"], "axis-name"))
        y += 20
        for rank, bars in enumerate(row["ranks"]):
            parts.append(text(LEFT - 10, y + 14, f"rank {rank}", "tick", "end"))
            for kind, stage, microbatch, begin, end in bars:
                a, b = axis.at(begin), axis.at(end)
                later = " later" if stage >= len(row["ranks"]) else ""
                parts.append(
                    f'<rect class="part {KINDS[kind][0]}{later}" x="{a:.1f}" y="{y:.1f}" '
                    f'width="{max(b - a, 0.5):.1f}" height="{ROW:.0f}"/>'
                )
                if b - a >= LEAST_TEXT and kind != "C":
                    parts.append(text((a + b) / 2, y + 14, str(microbatch), "bar-text", "middle"))
            y += ROW + GAP
        y += 6
    parts.append(x_marks(axis, axis.ticks(), y, _seconds))
    parts.append(text(WIDTH - 16, y + 38, "seconds from the first pass", "axis-name", "end"))
    return svg(f"timeline of one step of {label}: simulated above measured", y + 46, parts)


def _legend(rows: Sequence[Timeline]) -> list[str]:
    """Return a swatch and a name for each kind of bar that there is, and for where there is none."""
    present = {bar[0] for row in rows for bars in row["ranks"] for bar in bars}
    entries = [(f"part {colour}", name) for kind, (colour, name) in KINDS.items() if kind in present]
    parts, x = [], 12.0
    for style, name in (*entries, ("axis", IDLE)):
        parts.append(f'<rect class="{style}" x="{x:.1f}" y="8" width="11" height="11"/>')
        parts.append(text(x + 16, 18, name, "tick"))
        x += 30 + 6.5 * len(name)
    return parts


def _timeline(point: Point, label: str) -> list[Timeline]:
    """Return the timeline of a technique's first launch that has one."""
    found = [
        (m.launch, rows)
        for (name, _), cell in point.cells.items()
        if name == label
        for m in cell.measurements
        if (rows := (m.accounting or {}).get("timeline"))
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else []


def _end(rows: Sequence[Timeline]) -> float:
    return max(float(bar[4]) for row in rows for bars in row["ranks"] for bar in bars)


def _seconds(value: float) -> str:
    return format_quantity(value, "s")
