"""Points at which data-parallel techniques must prove themselves."""

from __future__ import annotations

from paceline.base.family import Scalar
from paceline.families.training.core.conformance import POINT, RANKS

__all__ = ["RANKS", "points"]


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, whether ``brief`` or not."""
    return [dict(POINT)]
