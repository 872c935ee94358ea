"""Points at which every technique of ``cache`` must prove itself."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.serving.core.planning.conformance import PROTOCOL, RANKS, first

__all__ = ["PROTOCOL", "RANKS", "points"]

POINTS: tuple[Mapping[str, Scalar], ...] = (
    {"requests": 8, "bits": 4},
    {"requests": 8, "bits": 2},
)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, the first alone where ``brief``."""
    return first(POINTS, brief=brief)
