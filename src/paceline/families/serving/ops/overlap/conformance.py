"""Points at which every technique of ``overlap`` must prove itself."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.serving.core.planning.conformance import PROTOCOL, RANKS, first

__all__ = ["PROTOCOL", "RANKS", "points"]

POINTS: tuple[Mapping[str, Scalar], ...] = (
    {"batch_rows": 2048},
    {"batch_rows": 300, "exchange": 0.5},
)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, the first alone where ``brief``."""
    return first(POINTS, brief=brief)
