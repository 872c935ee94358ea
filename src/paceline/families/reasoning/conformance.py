"""Points at which every technique of the family must prove itself; used by ``paceline.testing.conformance``."""

from __future__ import annotations

from paceline.family import Scalar

RANKS = (1,)


def points(operation: str, *, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points of an operation: several traces, one alone, and temperature 0, where all traces are one."""
    common: dict[str, Scalar] = {
        "op": operation,
        "partner": "strong",
        "questions": 6,
        "samples": 4,
        "orders": 3,
        "levels": "1-6",
    }
    edges: list[dict[str, Scalar]] = [
        {"samples": 1},
        {"temperature": 0.0},
        {"model": "strong", "partner": "weak", "levels": "3-3"},
    ]
    return [common, *([] if brief else (common | edge for edge in edges))]
