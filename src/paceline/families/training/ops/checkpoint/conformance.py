"""Points at which techniques that checkpoint must prove themselves."""

from __future__ import annotations

from paceline.base.families.family import Scalar
from paceline.families.training.core.planning.conformance import POINT, RANKS

__all__ = ["RANKS", "points"]


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, whether ``brief`` or not."""
    return [{**POINT, "steps": 30, "window": 10}]
