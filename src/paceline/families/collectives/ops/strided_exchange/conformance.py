"""Points at which every technique of a strided exchange must conform."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.collectives.core.planning.conformance import RANKS, shaped_points

__all__ = ["RANKS", "points"]

SHAPES: tuple[Mapping[str, Scalar], ...] = (
    {"num_blocks": 1, "block_bytes": 8, "stride_bytes": 8, "planes": 1},
    {"num_blocks": 7, "block_bytes": 24, "stride_bytes": 40, "planes": 1},
    {"num_blocks": 33, "block_bytes": 64, "stride_bytes": 136, "planes": 3},
)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, one of them where ``brief``."""
    return shaped_points(SHAPES, brief=brief)
