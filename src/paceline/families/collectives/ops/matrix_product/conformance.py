"""Points at which every technique of a matrix product must conform."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.collectives.core.planning.conformance import RANKS, shaped_points

__all__ = ["RANKS", "points"]

SHAPES: tuple[Mapping[str, Scalar], ...] = (
    {"side": 4},
    {"side": 36},
    {"side": 130},
)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, one of them where ``brief``."""
    return shaped_points(SHAPES, brief=brief)
