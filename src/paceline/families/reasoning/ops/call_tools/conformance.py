"""Points at which every technique of ``call_tools`` must prove itself."""

from __future__ import annotations

from paceline.base.families.family import Scalar

RANKS = (1,)
COMMON: dict[str, Scalar] = {"op": "call_tools", "questions": 3, "calls": 6, "depth": 2, "tool_s": 0.01}
EDGES: tuple[dict[str, Scalar], ...] = (
    {"calls": 1, "depth": 1},
    {"calls": 4, "depth": 4},
    {"replanned": True},
)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points: layers of calls, one call alone, a chain, and calls that can be planned only later."""
    return [COMMON, *([] if brief else (COMMON | edge for edge in EDGES))]
