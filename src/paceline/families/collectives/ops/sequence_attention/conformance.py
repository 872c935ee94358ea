"""Points at which every technique of attention over a split sequence must conform."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.collectives.core.planning.conformance import RANKS, shaped_points

__all__ = ["RANKS", "points"]

SHAPES: tuple[Mapping[str, Scalar], ...] = (
    {"tokens": 1, "heads": 2, "kv_heads": 2, "head_dim": 8},
    {"tokens": 9, "heads": 4, "kv_heads": 4, "head_dim": 16},
    {"tokens": 33, "heads": 4, "kv_heads": 1, "head_dim": 32},
)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, one of them where ``brief``."""
    return shaped_points(SHAPES, brief=brief)
