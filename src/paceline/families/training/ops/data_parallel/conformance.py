"""Points at which data-parallel techniques must prove themselves."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.training.core.planning.conformance import POINT, RANKS

__all__ = ["RANKS", "points"]

LOCAL: Mapping[str, Scalar] = {"context": 32, "learning_rate": 0.005}
"""What lets ranks learn that never, or seldom, hear of one another: a rank of four sees two sequences in a step. Twice
as long, and at half the learning rate, they take 0.12 nats or more away, where 0.02 are asked (two seeds of all
techniques at four ranks); with the shared point it was 0.02 to 0.05 without communication, and a seed decided."""


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, whether ``brief`` or not."""
    return [{**POINT, **LOCAL}]
