"""Effects with their intervals, a row for each point and technique, beside the line of no change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from paceline.analysis.compare import Comparison
from paceline.base.families.family import load_family
from paceline.report.charts.svg import WIDTH, Axis, svg, text, x_marks
from paceline.report.tables.results import effect_text, format_param, varying_params
from paceline.report.words.estimates import ends_of_effect, verdict_text

ROW = 22
MOST_ROWS = 60
"""More rows than these are no figure that a reader takes in."""
MOST_SPAN = 64.0
"""The axis of ratios ends here; what lies beyond is drawn at its edge, and its number stands beside it."""
VERDICTS = {"faster": "good", "slower": "bad"}
CHARACTER = 6.9
"""Pixels of a character, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One comparison as it is drawn."""

    name: str
    value: float
    low: float | None
    high: float | None
    says: str
    colour: str


def effect_chart(comparisons: Sequence[Comparison]) -> Markup:
    """Draw comparisons of one suite and metric, with the numbers and verdicts that tables give them.

    Args:
        comparisons: At least one with a finite effect, at most ``MOST_ROWS``; all of one kind.
    """
    first = comparisons[0]
    keys = varying_params([c.point for c in comparisons])
    rows = [_row(c, keys) for c in comparisons if math.isfinite(c.effect.value)]
    ratio = first.kind == "ratio"
    left = 20 + CHARACTER * max(*(len(r.name) for r in rows), len(", ".join(keys)) + 12)
    right = WIDTH - 16 - CHARACTER * max(len(r.says) for r in rows)
    axis = _axis(rows, left, max(right, left + 120), ratio=ratio)
    bottom = 34.0 + ROW * len(rows)
    middle = axis.at(1.0 if ratio else 0.0)
    parts = [
        text(left - 10, 16, " · ".join(["technique", *([", ".join(keys)] if keys else [])]), "tick", "end")
    ]
    parts += [text(left, 16, f"{first.metric} {'×' if ratio else '−'} baseline", "axis-name")]
    parts.append(f'<path class="none" d="M{middle:.1f} 26V{bottom:.1f}"/>')
    for number, row in enumerate(rows):
        y = 34.0 + ROW * number + ROW / 2
        parts.append(text(left - 10, y + 4, row.name, "label base", "end"))
        at = axis.at(_inside(row.value, axis))
        if row.low is not None and row.high is not None:
            ends = [axis.at(_inside(end, axis)) for end in (row.low, row.high)]
            parts.append(f'<path class="whisker {row.colour}" d="M{ends[0]:.1f} {y:.1f}H{ends[1]:.1f}"/>')
        parts.append(f'<circle class="{row.colour}" cx="{at:.1f}" cy="{y:.1f}" r="4"/>')
        parts.append(text(axis.end + 12, y + 4, row.says, "tick"))
    parts.append(x_marks(axis, axis.ticks(), bottom, lambda value: f"{value:.4g}"))
    title = f"{first.metric} of techniques against {first.point.baseline}, {first.point.suite}"
    return svg(title, bottom + 30, parts)


def _row(c: Comparison, keys: Sequence[str]) -> _Row:
    params = ", ".join(format_param(k, c.point.params.get(k)) for k in keys)
    bounds = load_family(c.point.family).metric(c.metric).range_of_values
    low, high = ends_of_effect(c.effect, c.kind, bounds).drawn()
    return _Row(
        name=f"{c.label} · {params}" if params else c.label,
        value=c.effect.value,
        low=low,
        high=high,
        says=f"{effect_text(c)} {verdict_text(c)}",
        colour=VERDICTS.get(c.verdict.name, "open"),
    )


def _axis(rows: Sequence[_Row], begin: float, end: float, *, ratio: bool) -> Axis:
    values = [v for r in rows for v in (r.value, r.low, r.high) if v is not None and math.isfinite(v)]
    if ratio:
        span = max(1.05, *(max(v, 1 / v) for v in values if v > 0)) * 1.05
        span = min(span, MOST_SPAN)
        low = 1 / span if min(values) < 1 else 1 / 1.02
        high = span if max(values) > 1 else 1.02
        return Axis(low=low, high=high, begin=begin, end=end, log=True)
    low, high = min(0.0, *values), max(0.0, *values)
    pad = 0.06 * (high - low) or 1.0
    return Axis(low=low - pad, high=high + pad, begin=begin, end=end, log=False)


def _inside(value: float, axis: Axis) -> float:
    return min(max(value, axis.low), axis.high)
