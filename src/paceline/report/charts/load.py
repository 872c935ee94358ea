"""Charts of servers under load, as static SVG: distribution functions, and single calls over time.

A call is a bar from the instant at which it was due, in three colours: until it was sent, until its first token, and
until its last. Techniques of a launch get the same calls, so bars of one number are of one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from paceline.base.units import format_quantity
from paceline.report.charts.large import Swept
from paceline.report.charts.svg import WIDTH, Axis, Format, svg, text, x_marks, y_grid

SHARES = (0, 0.25, 0.5, 0.75, 0.9, 1)
PARTS = (("s2", "not sent yet"), ("s0", "until the first token"), ("s1", "until the last"))
ROW, GAP, LEFT = 11.0, 3.0, 84.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBar:
    """One call, in seconds behind the start of its launch."""

    number: int
    name: str
    """What stands at the left: its number, and its tenant where there are several."""
    due_s: float
    sent_s: float | None
    first_s: float | None
    last_s: float | None
    failure: str | None
    """What became of it, if it has no whole answer."""


def share_chart(series: Sequence[Swept], *, title: str, x_name: str, y_name: str, x_format: Format) -> Markup:
    """Draw distribution functions: the share of values at or below a value, which is on a logarithmic axis.

    Args:
        series: For each technique shares and the values up to which they reach, both rising.
        title: Of the drawing.
        x_name: What the values are.
        y_name: What the shares are of.
        x_format: Gives the text of a tick across.
    """
    values = [value for s in series for _, value, *_ in s.points]
    right, bottom = WIDTH - 16.0, 330.0
    x_axis = Axis(low=min(values) / 1.05, high=max(values) * 1.05, begin=72, end=right, log=True)
    y_axis = Axis(low=0, high=1, begin=bottom, end=54, log=False)
    parts, x = [], 72.0
    for s in series:
        parts.append(f'<path class="line {s.colour}" d="M{x:.1f} 12H{x + 22:.1f}"/>')
        parts.append(text(x + 28, 16, s.name, f"label {s.colour}"))
        x += 52 + 7.6 * len(s.name)
    parts.append(text(72, 40, y_name, "axis-name"))
    parts += [y_grid(y_axis, 72, right, lambda v: f"{v:.0%}", SHARES)]
    parts += [x_marks(x_axis, x_axis.ticks(), bottom, x_format)]
    parts.append(text(right, bottom + 40, x_name, "axis-name", "end"))
    for s in series:
        steps = "".join(f"H{x_axis.at(v):.1f}V{y_axis.at(share):.1f}" for share, v, *_ in s.points)
        start = f"M{x_axis.at(s.points[0][1]):.1f} {y_axis.at(0):.1f}"
        parts.append(f'<path class="line {s.colour}" d="{start}{steps}H{right:.1f}"/>')
    return svg(title, 380, parts)


def calls_chart(label: str, calls: Sequence[CallBar], *, end_s: float) -> Markup:
    """Draw calls as bars over time, a row for each.

    Args:
        label: The technique's name.
        calls: In the order in which they were due.
        end_s: Where time's axis ends; the same for techniques that are to be compared.
    """
    begin_s = min(c.due_s for c in calls)
    axis = Axis(low=begin_s, high=max(end_s, begin_s + 1e-9), begin=LEFT, end=WIDTH - 16, log=False)
    parts, x = [], 12.0
    for colour, name in PARTS:
        parts.append(f'<rect class="part {colour}" x="{x:.1f}" y="8" width="11" height="11"/>')
        parts.append(text(x + 16, 18, name, "tick"))
        x += 30 + 6.5 * len(name)
    y = 34.0
    for call in calls:
        parts.append(text(LEFT - 10, y + 9, call.name, "tick", "end"))
        instants = [call.due_s, call.sent_s, call.first_s, call.last_s]
        last = call.due_s
        for (colour, _), until in zip(PARTS, instants[1:], strict=True):
            if until is None:
                break
            a, b = axis.at(min(last, end_s)), axis.at(min(max(until, last), end_s))
            if b - a >= 0.05:
                parts.append(
                    f'<rect class="part {colour}" x="{a:.1f}" y="{y:.1f}" width="{b - a:.1f}" height="{ROW:.0f}"/>'
                )
            last = max(until, last)
        if call.failure is not None:
            parts.append(text(axis.at(min(last, end_s)) + 6, y + 9, call.failure, "tick"))
        y += ROW + GAP
    parts.append(x_marks(axis, axis.ticks(), y, lambda v: format_quantity(v, "s")))
    parts.append(text(WIDTH - 16, y + 38, "seconds behind the start", "axis-name", "end"))
    return svg(f"calls of {label} over time: waiting, first token, answer", y + 46, parts)
