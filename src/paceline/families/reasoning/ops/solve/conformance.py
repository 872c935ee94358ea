"""Points at which every technique of ``solve`` must prove itself."""

from __future__ import annotations

from paceline.base.families.family import Scalar

RANKS = (1,)
COMMON: dict[str, Scalar] = {
    "op": "solve",
    "partner": "strong",
    "questions": 4,
    "samples": 4,
    "orders": 3,
    "levels": "1-4",
}
EDGES: tuple[dict[str, Scalar], ...] = (
    {"samples": 1},
    {"temperature": 0.0},
    {"model": "strong", "partner": "weak", "levels": "3-3"},
)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points: several traces, one alone, temperature 0, where all traces are one, and other models."""
    return [COMMON, *([] if brief else (COMMON | edge for edge in EDGES))]
