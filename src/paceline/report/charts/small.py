"""Small charts of findings: one comparison, one crossing, one claim or one change, as wide as a telephone.

They are SVG like the charts of boards, with classes of the page's style sheet; ``standalone`` makes a file of one that
brings its own few rules and is readable in light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from paceline.report.charts.svg import Axis, Format, text, x_marks

WIDTH, LEFT, RIGHT = 340.0, 8.0, 332.0
FILE_WIDTH = 440
"""Pixels of a chart that stands alone; its height follows."""
CHARACTER = 6.4
"""Width of a letter of 12 px, about."""
STYLE = """
svg { background: #ffffff; --text: #1b1f24; --muted: #57606a; --line: #dde1e6; --good: #0b6b3a; --bad: #a32f14; }
@media (prefers-color-scheme: dark) {
svg { background: #14171a; --text: #e4e7ea; --muted: #a3acb5; --line: #2f353c; --good: #66d19e; --bad: #f4a08c; } }
text { font: 12px system-ui, sans-serif; fill: var(--text); }
.tick, .axis-name { fill: var(--muted); }
.axis, .asked { stroke: var(--muted); fill: none; }
.grid { stroke: var(--line); fill: none; }
.asked { stroke-dasharray: 4 3; }
.bar.good, .dot.good { fill: var(--good); } .bar.bad, .dot.bad { fill: var(--bad); }
.bar.base, .bar.even, .dot.base { fill: var(--muted); }
.line { fill: none; stroke-width: 2; } .line.good { stroke: var(--good); } .line.bad { stroke: var(--bad); }
.line.base { stroke: var(--muted); }
.launch { stroke: var(--text); fill: none; }
"""
"""The rules that a chart needs outside a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One value with what each launch gave."""

    name: str
    value: float
    launches: tuple[float, ...]
    shown: str
    """The value as people write it."""
    kind: str
    """Class: ``good``, ``bad`` or ``base``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One technique over a sweep or over nights."""

    name: str
    places: tuple[tuple[float, float], ...]
    kind: str


def small_svg(title: str, height: float, parts: Sequence[str]) -> Markup:
    """Return a small drawing with an accessible title."""
    return Markup(
        f'<svg class="chart small" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def bar_chart(groups: Sequence[tuple[str, Sequence[Bar]]], *, title: str) -> Markup:
    """Draw bars from zero, a group for each metric on a scale of its own; a mark for every launch."""
    parts: list[str] = []
    y = 4.0
    for name, bars in groups:
        parts.append(text(LEFT, y + 11, name, "axis-name"))
        y += 18
        highest = max((v for b in bars for v in (b.value, *b.launches)), default=0.0)
        if highest <= 0:
            highest = 1.0
        wide = max((len(b.shown) for b in bars), default=0) * CHARACTER + 8
        axis = Axis(low=0, high=highest, begin=LEFT, end=RIGHT - wide, log=False)
        for bar in bars:
            parts.append(text(LEFT, y + 11, shortened(bar.name, RIGHT - LEFT), "label"))
            width = max(axis.at(max(bar.value, 0.0)) - LEFT, 1.0)
            parts.append(
                f'<rect class="bar {bar.kind}" x="{LEFT:.1f}" y="{y + 15:.1f}" width="{width:.1f}" height="11"/>'
            )
            marks = "".join(f"M{axis.at(max(v, 0.0)):.1f} {y + 13:.1f}v15" for v in sorted(bar.launches))
            parts.append(f'<path class="launch" d="{marks}"/>' if marks else "")
            end = max([axis.at(max(v, 0.0)) for v in bar.launches] + [LEFT + width])
            parts.append(text(end + 5, y + 25, bar.shown, "tick"))
            y += 33
        y += 6
    return small_svg(title, y, parts)


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    y_name: str,
    x_ends: tuple[str, str],
    y_format: Format,
    marked: tuple[float, str] | None = None,
    log: bool = True,
) -> Markup:
    """Draw lines over a sweep, with a dashed line at a marked place; all values are positive where ``log``.

    Args:
        lines: Each with two places or more.
        title: Of the drawing.
        y_name: What lies up.
        x_ends: Texts below the first and the last place.
        y_format: Gives the text of the least and the largest value.
        marked: A place and what is written there.
        log: Whether both axes are logarithmic.
    """
    xs = [x for line in lines for x, _ in line.places]
    ys = [y for line in lines for _, y in line.places]
    low, high = min(ys), max(ys)
    left = LEFT + CHARACTER * max(len(y_format(low)), len(y_format(high))) + 6
    x_axis = Axis(low=min(xs), high=max(xs), begin=left, end=RIGHT, log=log)
    y_axis = Axis(low=low, high=high, begin=128, end=40, log=log)
    parts = [text(LEFT, 14, y_name, "axis-name")]
    for value in dict.fromkeys((low, high)):
        y = y_axis.at(value)
        parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}H{RIGHT:.1f}"/>')
        parts.append(text(left - 5, y + 4, y_format(value), "tick", "end"))
    parts.append(text(left, 150, x_ends[0], "tick") + text(RIGHT, 150, x_ends[1], "tick", "end"))
    if marked is not None:
        x = x_axis.at(marked[0])
        parts.append(f'<path class="asked" d="M{x:.1f} 34V134"/>')
        parts.append(text(min(max(x, left + 40), RIGHT - 40), 30, marked[1], "tick", "middle"))
    y = 170.0
    for line in lines:
        drawn = [(x_axis.at(x), y_axis.at(v)) for x, v in line.places]
        path = "L".join(f"{x:.1f} {v:.1f}" for x, v in drawn)
        parts.append(f'<path class="line {line.kind}" d="M{path}"/>')
        parts += [f'<circle class="dot {line.kind}" cx="{x:.1f}" cy="{v:.1f}" r="3"/>' for x, v in drawn]
        parts.append(f'<path class="line {line.kind}" d="M{LEFT:.1f} {y - 4:.1f}h18"/>')
        parts.append(text(LEFT + 24, y, shortened(line.name, RIGHT - LEFT - 24), "label"))
        y += 18
    return small_svg(title, y - 8, parts)


def asked_chart(
    found: tuple[float, float | None, float | None], asked: float, *, title: str, ratio: bool, met: bool
) -> Markup:
    """Draw what was found with its interval beside what a claim asks for; of a ratio, beside no change too."""
    value, low, high = found
    ends = [v for v in (value, low, high, asked, 1.0 if ratio else None) if v is not None]
    log = min(ends) > 0 and max(ends) / min(ends) > 4
    pad = 0.06 * (max(ends) - min(ends)) or 0.1
    bounds = (min(ends) / 1.2, max(ends) * 1.2) if log else (min(ends) - pad, max(ends) + pad)
    axis = Axis(low=bounds[0], high=bounds[1], begin=LEFT + 12, end=RIGHT - 12, log=log)
    kind = "good" if met else "bad"
    parts = [x_marks(axis, axis.ticks()[::2], 66, lambda v: f"{v:.3g}")]
    parts.append(f'<path class="asked" d="M{axis.at(asked):.1f} 20V66"/>')
    parts.append(text(min(max(axis.at(asked), 40), RIGHT - 30), 14, f"asked {asked:.3g}", "tick", "middle"))
    if ratio:
        parts.append(f'<path class="grid" d="M{axis.at(1.0):.1f} 20V66"/>')
    if low is not None and high is not None:
        parts.append(f'<path class="line {kind}" d="M{axis.at(low):.1f} 44H{axis.at(high):.1f}"/>')
    parts.append(f'<circle class="dot {kind}" cx="{axis.at(value):.1f}" cy="44" r="4"/>')
    parts.append(text(min(max(axis.at(value), 40), RIGHT - 40), 34, f"found {value:.3g}", "tick", "middle"))
    return small_svg(title, 92, parts)


def shortened(name: str, room: float) -> str:
    """Cut a name to what fits, with a sign that it was cut."""
    most = int(room / CHARACTER)
    return name if len(name) <= most else name[: most - 1] + "…"


def standalone(chart: Markup) -> str:
    """Return a chart as a file that needs no page: with its name space, its size and its rules."""
    begin, _, rest = str(chart).partition(">")
    width = f'<svg xmlns="http://www.w3.org/2000/svg" width="{FILE_WIDTH}" '
    head = begin.replace("<svg ", width, 1)
    return f"{head}><style>{STYLE}</style>{rest}\n"
