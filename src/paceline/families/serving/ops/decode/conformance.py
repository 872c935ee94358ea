"""Points at which every technique of ``decode`` must prove itself."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.serving.core.planning.conformance import PROTOCOL, RANKS, first

__all__ = ["PROTOCOL", "RANKS", "points"]

POINTS: tuple[Mapping[str, Scalar], ...] = (
    {"requests": 5, "output_tokens": 37},
    {"requests": 5, "output_tokens": 37, "acceptance": 0.0, "servers": 2, "lookahead": 3},
)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, the first alone where ``brief``."""
    return first(POINTS, brief=brief)
