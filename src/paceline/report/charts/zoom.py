"""What a drawing is made of, for the pages' script: readers zoom, and switch scales, without another source of numbers.

A drawing itself is static; these are its numbers, to five digits, as one attribute of its figure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from paceline.report.charts.large import Swept

DIGITS = 5

Interval = tuple[float, float | None, float | None]
"""Value, low end, high end."""


def swept_plot(
    series: Sequence[Swept], *, x: tuple[str, str, float], y: tuple[str, str], baseline: str | None = None
) -> str:
    """Describe what ``charts.sweep_chart`` draws.

    Args:
        series: What it draws.
        x: Name, unit, and how many of the unit a place of 1 is.
        y: Name and unit.
        baseline: The series that others can be shown relative to, if it is one of them.
    """
    places = sorted({point[0] for s in series for point in s.points})
    rows = [(s.name, s.colour, {place: tuple(values) for place, *values in s.points}) for s in series]
    return _text(
        {
            "x": [_rounded(place * x[2]) for place in places],
            "xName": x[0],
            "xUnit": x[1],
            "yName": y[0],
            "yUnit": y[1],
            "log": [1, 1],
            "base": baseline if any(s.name == baseline for s in series) else None,
            "series": [_series(name, colour, [found.get(p) for p in places]) for name, colour, found in rows],
        }
    )


def nightly_plot(name: str, unit: str, colour: str, nights: Sequence[tuple[str, Interval]]) -> str:
    """Describe a series over nights, which are (day, what was measured)."""
    return _text(
        {
            "x": list(range(len(nights))),
            "names": [day for day, _ in nights],
            "xName": "night",
            "xUnit": "",
            "yName": name,
            "yUnit": unit,
            "log": [0, 0],
            "base": None,
            "series": [_series(name, colour, [values for _, values in nights])],
        }
    )


def _series(name: str, colour: str, values: Sequence[tuple[float | None, ...] | None]) -> dict[str, object]:
    columns = [[v[i] if v is not None else None for v in values] for i in range(3)]
    y, low, high = ([_rounded(v) for v in column] for column in columns)
    bounds = {"low": low, "high": high} if any(v is not None for v in (*low, *high)) else {}
    return {"name": name, "colour": colour, "y": y, **bounds}


def _rounded(value: float | None) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    found = float(f"{value:.{DIGITS}g}")
    return int(found) if found.is_integer() and abs(found) < 1e15 else found


def _text(found: dict[str, object]) -> str:
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
