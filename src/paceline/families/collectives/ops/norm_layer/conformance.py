"""Points at which every technique of row-parallel layers must conform."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.collectives.core.planning.conformance import RANKS, shaped_points

__all__ = ["RANKS", "points"]

SHAPES: tuple[Mapping[str, Scalar], ...] = (
    {"tokens": 1, "hidden": 48, "layers": 1},
    {"tokens": 5, "hidden": 60, "layers": 2},
    {"tokens": 64, "hidden": 96, "layers": 3},
)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, one of them where ``brief``."""
    return shaped_points(SHAPES, brief=brief)
