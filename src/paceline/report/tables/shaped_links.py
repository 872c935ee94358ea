"""Links whose rate is shaped: where what a call sends passes in the link's burst, its rate is not in the time."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.analysis.points import Point
from paceline.base.counting import number_of
from paceline.base.units import format_size

SENT = "wire_bytes"
"""Bytes that the busiest rank sends in one call."""


def burst_note(points: Sequence[Point]) -> list[str]:
    """Say at how many points no technique sends more in a call than a rested link lets pass at once."""
    known = [(point, burst) for point in points if (burst := _burst_bytes(point)) and _sent_bytes(point)]
    fitting = {burst for point, burst in known if _sent_bytes(point) <= burst}
    if not fitting:
        return []
    count = sum(_sent_bytes(point) <= burst for point, burst in known)
    sizes = " to ".join(format_size(size) for size in sorted({min(fitting), max(fitting)}))
    return [
        f"at {count} of {number_of(len(points), 'point')} no rank sends more in a call than the link's burst "
        f"({sizes}), which passes at memory speed: the link's delay is in these times, and its rate is hardly"
    ]


def _burst_bytes(point: Point) -> int:
    """Return the burst of a point's shaped link; 0 where it has none, nobody measured it, or a record has no number."""
    for cell in point.cells.values():
        for measurement in cell.measurements[:1]:
            calibrated = (measurement.ceilings or {}).get("calibrated")
            burst = calibrated.get("burst_bytes") if isinstance(calibrated, dict) else None
            if type(burst) is int and burst > 0:
                return burst
    return 0


def _sent_bytes(point: Point) -> float:
    return max(
        (v for (_, name), c in point.cells.items() if name == SENT for v in c.values.values()), default=0.0
    )
