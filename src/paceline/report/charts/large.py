"""Charts as static SVG: plain text, coloured by the page's style sheet, readable without scripts.

Every function returns markup whose texts are escaped. Coordinates are rounded to a tenth of a pixel, so the same
numbers give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from paceline.report.charts.svg import (
    NUM_COLOURS,
    TICKS,
    WIDTH,
    Axis,
    Format,
    svg,
    text,
    thin,
    x_marks,
    y_grid,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """One technique over a sweep."""

    name: str
    colour: str
    """Class of the style sheet."""
    points: tuple[tuple[float, float, float | None, float | None], ...]
    """x, value, low end, high end; sorted by x, all positive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The raw samples of one technique at one point."""

    name: str
    colour: str
    launches: tuple[tuple[int, tuple[float, ...], float], ...]
    """Launch number, samples, the launch's statistic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One technique in a plane of two values."""

    name: str
    colour: str
    x: tuple[float, float | None, float | None]
    """Value, low end, high end; all positive."""
    y: tuple[float, float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One technique's parts of a whole, in the order of their names."""

    name: str
    parts: tuple[float, ...]


def colours(names: Sequence[str], baseline: str) -> dict[str, str]:
    """Give each technique a colour class that depends on its place among all names, the baseline its own."""
    others = [name for name in sorted(set(names)) if name != baseline]
    found = {name: f"s{i % NUM_COLOURS} d{i // NUM_COLOURS % 3}" for i, name in enumerate(others)}
    return {**found, baseline: "base"}


def sweep_chart(
    series: Sequence[Swept],
    *,
    title: str,
    x_name: str,
    y_name: str,
    x_format: Format,
    y_format: Format,
    binary: bool = False,
    round_marks: bool = False,
) -> Markup:
    """Draw values with interval bands over a swept parameter, both axes logarithmic, names at the line ends.

    The x axis is marked at the swept values, or with ``round_marks`` at round ones.
    """
    xs = sorted({x for s in series for x, *_ in s.points})
    ys = [v for s in series for _, *values in s.points for v in values if v is not None and v > 0]
    longest = max(len(s.name) for s in series)
    right = WIDTH - min(240, 24 + 7 * longest)
    bottom = 330.0
    x_axis = Axis(low=xs[0], high=xs[-1], begin=72, end=right, log=True)
    y_axis = Axis(low=min(ys) / 1.15, high=max(ys) * 1.15, begin=bottom, end=34, log=True, binary=binary)
    marks = x_axis.ticks() if round_marks else thin(xs, TICKS + 2)
    parts = [y_grid(y_axis, 72, right, y_format), x_marks(x_axis, marks, bottom, x_format)]
    parts += [text(72, 16, y_name, "axis-name"), text(right, bottom + 40, x_name, "axis-name", "end")]
    parts += [_band(s, x_axis, y_axis) for s in series]
    for s in series:
        places = [(x_axis.at(x), y_axis.at(y)) for x, y, *_ in s.points]
        parts.append(f'<path class="line {s.colour}" d="{_polyline(places)}"/>')
        parts += [f'<circle class="dot {s.colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places]
    ends = {i: y_axis.at(s.points[-1][1]) for i, s in enumerate(series)}
    for i, y in _spread(ends, 15, 34, bottom).items():
        x = x_axis.at(series[i].points[-1][0])
        parts.append(text(x + 10, y + 4, series[i].name, f"label {series[i].colour}"))
    return svg(title, 380, parts)


def distribution_chart(
    groups: Sequence[Distribution],
    *,
    title: str,
    x_name: str,
    x_format: Format,
    binary: bool = False,
) -> Markup:
    """Draw the share of samples at or below a value, and under it every sample, a row for each launch."""
    samples = [v for g in groups for _, drawn, _ in g.launches for v in drawn]
    low, high = min(samples), max(samples)
    log = low > 0 and high / low > 5
    pad = (high / low) ** 0.02 if log else (high - low) * 0.02 or abs(low) * 0.02 or 1.0
    left = 36.0 + 7 * min(24, max(len(g.name) for g in groups))
    bounds = (low / pad, high * pad) if log else (low - pad, high + pad)
    x_axis = Axis(low=bounds[0], high=bounds[1], begin=left, end=WIDTH - 16, log=log, binary=binary)
    share = Axis(low=0, high=1, begin=210, end=30, log=False)
    parts = [text(left, 16, "share of samples at or below", "axis-name")]
    parts.append(y_grid(share, left, WIDTH - 16, lambda v: f"{v:.0%}", (0, 0.25, 0.5, 0.75, 1)))
    parts += [f'<path class="line {g.colour}" d="{_steps(g, x_axis, share)}"/>' for g in groups]
    y = 232.0
    for g in groups:
        rows = len(g.launches)
        height = max(rows * 13.0, 14.0)
        name = g.name if len(g.name) <= 24 else g.name[:23] + "…"
        parts.append(text(left - 12, y + height / 2 + 4, name, f"label {g.colour}", "end"))
        for row, (_, drawn, middle) in enumerate(g.launches):
            top = y + row * 13
            parts.append(f'<path class="samples {g.colour}" d="{_marks(drawn, x_axis, top, 8)}"/>')
            parts.append(f'<path class="middle" d="M{x_axis.at(middle):.1f} {top - 2:.1f}v12"/>')
        y += height + 10
    parts.append(x_marks(x_axis, x_axis.ticks(), y, x_format))
    parts.append(text(WIDTH - 16, y + 40, x_name, "axis-name", "end"))
    return svg(title, y + 48, parts)


def frontier_chart(
    dots: Sequence[Dot],
    frontier: Sequence[tuple[float, float]],
    *,
    title: str,
    x_name: str,
    y_name: str,
    x_format: Format,
    y_format: Format,
    binary: bool = False,
    rising: bool = False,
    beneath: tuple[str, Sequence[tuple[float, float]]] = ("", ()),
) -> Markup:
    """Draw techniques in a plane, with their intervals and the stair of the best.

    Axes are logarithmic; where what lies up is better when higher, its axis is linear.

    Args:
        dots: The techniques.
        frontier: The best of them, (x, y), from left to right: x rises and y falls, or rises with ``rising``.
        title: Of the drawing.
        x_name: What lies across.
        y_name: What lies up.
        x_format: Gives the text of a tick across.
        y_format: Gives the text of a tick up.
        binary: Mark powers of two across, for sizes.
        rising: What lies up is better when higher.
        beneath: Name and (x, y) of a curve that is drawn below the dots.
    """
    name, curve = beneath
    xs = [v for d in dots for v in d.x if v is not None and v > 0] + [x for x, _ in curve]
    ys = [v for d in dots for v in d.y if v is not None and v > 0] + [y for _, y in curve]
    right, bottom = WIDTH - 16.0, 330.0
    x_axis = Axis(low=min(xs) / 1.3, high=max(xs) * 1.3, begin=72, end=right, log=True, binary=binary)
    pad = 0.06 * (max(ys) - min(ys)) or 0.1 * max(ys)
    low, high = (min(ys) - pad, max(ys) + pad) if rising else (min(ys) / 1.1, max(ys) * 1.1)
    y_axis = Axis(low=low, high=high, begin=bottom, end=34, log=not rising)
    parts = [y_grid(y_axis, 72, right, y_format), x_marks(x_axis, x_axis.ticks(), bottom, x_format)]
    parts += [text(72, 16, y_name, "axis-name"), text(right, bottom + 40, x_name, "axis-name", "end")]
    if frontier:
        at = [(x_axis.at(x), y_axis.at(y)) for x, y in frontier]
        steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in at[1:])
        worst = bottom if rising else 34
        parts.append(
            f'<path class="frontier" d="M{at[0][0]:.1f} {worst:.0f}V{at[0][1]:.1f}{steps}H{right:.1f}"/>'
        )
    if curve:
        drawn = [(x_axis.at(x), y_axis.at(y)) for x, y in curve]
        parts.append(f'<path class="line beneath" d="{_polyline(drawn)}"/>')
        parts.append(text(drawn[-1][0], drawn[-1][1] + 16, name, "tick", "end"))
    for d in dots:
        x, y = x_axis.at(d.x[0]), y_axis.at(d.y[0])
        if d.x[1] and d.x[2]:
            parts.append(
                f'<path class="line {d.colour}" d="M{x_axis.at(d.x[1]):.1f} {y:.1f}H{x_axis.at(d.x[2]):.1f}"/>'
            )
        if d.y[1] and d.y[2]:
            parts.append(
                f'<path class="line {d.colour}" d="M{x:.1f} {y_axis.at(d.y[1]):.1f}V{y_axis.at(d.y[2]):.1f}"/>'
            )
        parts.append(f'<circle class="dot {d.colour}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
    parts += _dot_labels(dots, x_axis, y_axis)
    return svg(title, 380, parts)


NEAR = (-9, 13, 0, -23, 27, -37, 41)
"""Heights at which a name may stand beside its dot, the best first."""
LINE = 14
"""Height of a name. Where there is no room beside its dot it stands on one of the drawing's lines, and is led to it."""


def _dot_labels(dots: Sequence[Dot], x_axis: Axis, y_axis: Axis) -> list[str]:
    """Write each name where it covers no other name and no dot, as near to its own dot as there is room."""
    centres = [(x_axis.at(d.x[0]), y_axis.at(d.y[0])) for d in dots]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in centres]
    found = []
    for d, (x, y) in sorted(zip(dots, centres, strict=True), key=lambda pair: pair[1]):
        width = 7.6 * len(d.name)
        lines = range(int(y_axis.end) + LINE // 2, int(y_axis.begin) - LINE // 2, LINE)
        heights = [(y + shift, False) for shift in NEAR]
        heights += [(float(line), True) for line in sorted(lines, key=lambda line: abs(line - y))]
        places = [
            (left, height, is_far)
            for height, is_far in heights
            for left in (x + 9, x - 9 - width)
            if left >= x_axis.begin and left + width <= x_axis.end + 8
        ] or [(x_axis.end - width, y, False)]
        boxes = [(left, middle - 7, left + width, middle + 7) for left, middle, _ in places]
        best = _least_covered(boxes, taken)
        taken.append(boxes[best])
        left, middle, is_far = places[best]
        if is_far:
            end = left if left > x else left + width
            found.append(f'<path class="leader" d="M{x:.1f} {y:.1f}L{end:.1f} {middle:.1f}"/>')
        found.append(text(left, middle + 4, d.name, f"label {d.colour}"))
    return found


Box = tuple[float, float, float, float]
"""Left, upper, right and lower end."""


def _least_covered(boxes: Sequence[Box], taken: Sequence[Box]) -> int:
    """Return the number of the box that others cover least, of several the first: most often the first that is free."""
    best, least = 0, math.inf
    for number, box in enumerate(boxes):
        covered = 0.0
        for other in taken:
            covered += _covered(box, other)
            if covered >= least:  # areas only add up
                break
        else:
            best, least = number, covered
            if least == 0:
                break
    return best


def _covered(a: Box, b: Box) -> float:
    """Return the area that two boxes share."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def split_chart(
    bars: Sequence[Bar],
    names: Sequence[str],
    *,
    title: str,
    x_name: str,
    x_format: Format,
    binary: bool = False,
) -> Markup:
    """Draw each technique's parts as one bar from zero, with a legend; texts at the ends are the totals."""
    left = 36.0 + 7 * min(24, max(len(b.name) for b in bars))
    longest = max(sum(b.parts) for b in bars)
    axis = Axis(low=0, high=longest, begin=left, end=WIDTH - 90, log=False, binary=binary)
    parts, x = [], 12.0
    for i, name in enumerate(names):
        parts.append(f'<rect class="part s{i % NUM_COLOURS}" x="{x:.1f}" y="8" width="11" height="11"/>')
        parts.append(text(x + 16, 18, name, "tick"))
        x += 30 + 6.5 * len(name)
    y = 34.0
    for bar in bars:
        name = bar.name if len(bar.name) <= 24 else bar.name[:23] + "…"
        parts.append(text(left - 12, y + 13, name, "label base", "end"))
        begin = 0.0
        for i, part in enumerate(bar.parts):
            width = axis.at(begin + part) - axis.at(begin)
            if width >= 0.05:
                at = axis.at(begin)
                parts.append(
                    f'<rect class="part s{i % NUM_COLOURS}" x="{at:.1f}" y="{y:.1f}" width="{width:.1f}" height="18"/>'
                )
            begin += part
        parts.append(text(axis.at(begin) + 6, y + 13, x_format(begin), "tick"))
        y += 26
    parts.append(x_marks(axis, axis.ticks(), y, x_format))
    parts.append(text(WIDTH - 90, y + 38, x_name, "axis-name", "end"))
    return svg(title, y + 46, parts)


def interval_glyph(low: float, value: float, high: float, span: float, colour: str) -> Markup:
    """Draw a ratio's interval beside the line of no change, on a logarithmic axis from 1/span to span.

    The colour is a class of the style sheet: ``good``, ``bad`` or ``open``, as the verdict is, not as the side is.
    """
    axis = Axis(low=1 / span, high=span, begin=3, end=93, log=True)
    a, v, b = (axis.at(min(max(x, 1 / span), span)) for x in (low, value, high))
    return Markup(
        '<svg class="glyph" viewBox="0 0 96 14" width="96" height="14" aria-hidden="true" focusable="false">'
        f'<path class="none" d="M48 0v14"/><path class="whisker {colour}" d="M{a:.1f} 7H{b:.1f}"/>'
        f'<circle class="{colour}" cx="{v:.1f}" cy="7" r="3"/></svg>'
    )


def _band(series: Swept, x_axis: Axis, y_axis: Axis) -> str:
    """Fill between the interval's ends where both are known."""
    known = [(x, low, high) for x, _, low, high in series.points if low and high and low > 0]
    if not known:
        return ""
    upper = [(x_axis.at(x), y_axis.at(high)) for x, _, high in known]
    lower = [(x_axis.at(x), y_axis.at(low)) for x, low, _ in reversed(known)]
    return f'<path class="band {series.colour}" d="{_polyline([*upper, *lower])}Z"/>'


def _polyline(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _steps(group: Distribution, x_axis: Axis, y_axis: Axis) -> str:
    """Return the empirical distribution as a stair; of samples on one pixel only the last is drawn."""
    values = sorted(v for _, drawn, _ in group.launches for v in drawn)
    places: dict[str, float] = {}
    for i, x in enumerate(x_axis.all(values), start=1):
        places[f"{x:.0f}"] = i / len(values)
    path = [f"M{next(iter(places))} {y_axis.at(0):.1f}"]
    path += [f"H{x}V{y:.1f}" for x, y in zip(places, y_axis.all(list(places.values())), strict=True)]
    return "".join([*path, f"H{x_axis.end:.0f}"])


def _marks(samples: Sequence[float], axis: Axis, top: float, height: int) -> str:
    """Return a mark for each sample; samples on one pixel share theirs."""
    pixels = sorted({round(x) for x in axis.all(samples)})
    return "".join(f"M{x} {top:.0f}v{height}" for x in pixels)


def _spread(wanted: Mapping[int, float], gap: float, top: float, bottom: float) -> dict[int, float]:
    """Move labels apart until each has room, keeping their order."""
    order = sorted(wanted, key=lambda i: (wanted[i], i))
    placed: dict[int, float] = {}
    edge = top - gap
    for i in order:
        placed[i] = edge = max(wanted[i], edge + gap)
    limit = bottom + gap
    for i in reversed(order):
        placed[i] = limit = min(placed[i], limit - gap)
    return placed
