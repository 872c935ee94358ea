"""Points at which every technique of gossip must conform: sizes that hold more elements than ranks, no integers."""

from __future__ import annotations

from paceline.base.families.family import Scalar
from paceline.families.collectives.core.planning.conformance import RANKS, SIZES_BYTES, floating_points

__all__ = ["RANKS", "points"]


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, few of them where ``brief``."""
    return floating_points(SIZES_BYTES[2:], brief=brief)
