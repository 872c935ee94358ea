"""Points at which techniques of expert parallelism must prove themselves."""

from __future__ import annotations

from paceline.base.families.family import Scalar
from paceline.families.training.core.planning.conformance import FEWER_KV_HEADS, POINT, RANKS

__all__ = ["RANKS", "points"]


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, whether ``brief`` or not. What is exact needs no long run to show that it learns."""
    own: dict[str, Scalar] = {
        "context": 31,
        "steps": 26,
        "window": 12,
        "experts": 8,
        "top_k": 2,
        "capacity": 0.9,
    }
    return [{**POINT, **own, **FEWER_KV_HEADS}]
