"""Points at which every technique of ``serve`` must prove itself."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.serving.core.planning.conformance import CALLS, PROTOCOL, RANKS, first

__all__ = ["PROTOCOL", "RANKS", "points"]

POINTS: tuple[Mapping[str, Scalar], ...] = (
    {**CALLS, "arrivals": "at-once"},
    {**CALLS, "arrivals": "closed", "concurrency": 3, "tenants": 2},
)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, the first alone where ``brief``."""
    return first(POINTS, brief=brief)
