"""Points at which every technique of gated linear attention must conform."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.collectives.core.planning.conformance import RANKS, shaped_points

__all__ = ["RANKS", "points"]

SHAPES: tuple[Mapping[str, Scalar], ...] = (
    {"tokens": 1, "heads": 1, "head_dim": 8},
    {"tokens": 17, "heads": 3, "head_dim": 16},
    {"tokens": 50, "heads": 2, "head_dim": 32},
)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, one of them where ``brief``."""
    return shaped_points(SHAPES, brief=brief)
