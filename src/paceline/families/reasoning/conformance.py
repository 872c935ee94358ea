"""Points at which every technique of the family must prove itself; see ``paceline.workflows.conformance``."""

from __future__ import annotations

from paceline.base.family import Scalar
from paceline.families.reasoning.spec import CALL_TOOLS

RANKS = (1,)


def points(operation: str, *, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return an operation's points.

    Of traces: several, one alone, and temperature 0, where all traces are one. Of tools: layers, one call alone, a
    chain, and calls that can be planned only later.
    """
    if operation == CALL_TOOLS:
        tools: dict[str, Scalar] = {"op": operation, "questions": 3, "calls": 6, "depth": 2, "tool_s": 0.01}
        others: list[dict[str, Scalar]] = [
            {"calls": 1, "depth": 1},
            {"calls": 4, "depth": 4},
            {"replanned": True},
        ]
        return [tools, *([] if brief else (tools | other for other in others))]
    common: dict[str, Scalar] = {
        "op": operation,
        "partner": "strong",
        "questions": 4,
        "samples": 4,
        "orders": 3,
        "levels": "1-4",
    }
    edges: list[dict[str, Scalar]] = [
        {"samples": 1},
        {"temperature": 0.0},
        {"model": "strong", "partner": "weak", "levels": "3-3"},
    ]
    return [common, *([] if brief else (common | edge for edge in edges))]
