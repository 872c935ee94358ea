"""What charts are drawn with: axes with round ticks, texts and the frame, as SVG markup.

Coordinates are rounded to a tenth of a pixel, so the same numbers give the same bytes; texts are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

NUM_COLOURS = 8
"""Colours that the style sheet defines (classes ``s0`` … ``s7``); ``base`` is the baseline's."""
WIDTH = 760
TICKS = 7
"""About this many ticks on an axis."""

Format = Callable[[float], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A mapping from values to pixels."""

    low: float
    high: float
    begin: float
    end: float
    log: bool
    binary: bool = False
    """Ticks at powers of two, or round in units of them, for sizes."""

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.all([value])[0]

    def all(self, values: Sequence[float]) -> list[float]:
        """Return the pixels of values."""
        low, high, begin, length = self.low, self.high, self.begin, self.end - self.begin
        if self.log:
            low, high, values = math.log(low), math.log(high), [math.log(v) for v in values]
        if high <= low:
            return [begin + 0.5 * length for _ in values]
        return [begin + (v - low) / (high - low) * length for v in values]

    def ticks(self) -> list[float]:
        """Return round values inside the axis."""
        if self.log and self.binary:
            return _binary_ticks(self.low, self.high)
        if self.binary and self.high >= 1024:
            unit = 1024.0 ** math.floor(math.log(self.high, 1024))
            return [tick * unit for tick in _linear_ticks(self.low / unit, self.high / unit)]
        return _log_ticks(self.low, self.high) if self.log else _linear_ticks(self.low, self.high)


def svg(title: str, height: float, parts: Sequence[str]) -> Markup:
    """Return a drawing of a height with an accessible title."""
    return Markup(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )


def text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    """Return one line of text; ``kind`` is a class of the style sheet."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def y_grid(axis: Axis, left: float, right: float, form: Format, ticks: Sequence[float] | None = None) -> str:
    """Return horizontal lines with their values at the left."""
    parts = []
    for tick in ticks or axis.ticks():
        y = axis.at(tick)
        parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}H{right:.1f}"/>')
        parts.append(text(left - 8, y + 4, form(tick), "tick", "end"))
    return "".join(parts)


def x_marks(axis: Axis, ticks: Sequence[float], y: float, form: Format) -> str:
    """Return an axis with marks and their values below it."""
    parts = [f'<path class="axis" d="M{axis.begin:.1f} {y:.1f}H{axis.end:.1f}"/>']
    for tick in ticks:
        x = axis.at(tick)
        parts.append(f'<path class="axis" d="M{x:.1f} {y:.1f}v5"/>')
        parts.append(text(x, y + 19, form(tick), "tick", "middle"))
    return "".join(parts)


def thin(values: Sequence[float], count: int) -> list[float]:
    """Return about so many of the values, evenly."""
    step = max(1, math.ceil(len(values) / count))
    return list(values[::step])


def _log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5 steps over few decades, whole decades over many, and finer steps inside one decade."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high]
        if len(ticks) >= 4:
            return thin(ticks, TICKS + 2)
    return _linear_ticks(low, high)


def _binary_ticks(low: float, high: float) -> list[float]:
    """Return powers of two, as many as there is room for; inside one octave the linear steps."""
    ticks = [2.0**e for e in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    return thin(ticks, TICKS + 2) if len(ticks) >= 2 else _linear_ticks(low, high)


def _linear_ticks(low: float, high: float) -> list[float]:
    if high <= low:
        return [low]
    raw = (high - low) / (TICKS - 2)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step)
    ticks = [float(f"{i * step:.12g}") for i in range(first, first + 2 * TICKS) if i * step <= high]
    return ticks
