"""Points at which techniques of inference with shared experts must prove themselves."""

from __future__ import annotations

from paceline.base.families.family import Scalar
from paceline.families.training.core.planning.conformance import FEWER_KV_HEADS, POINT, RANKS

__all__ = ["RANKS", "points"]


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, whether ``brief`` or not."""
    own: dict[str, Scalar] = {"size": "deep", "context": 7, "steps": 12, "window": 6, "experts": 8}
    return [{**POINT, **own, **FEWER_KV_HEADS}]
