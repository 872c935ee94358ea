"""Points at which every technique of ``simulate`` must prove itself."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.serving.core.planning.conformance import CALLS, PROTOCOL, RANKS, first

__all__ = ["PROTOCOL", "RANKS", "points"]

POINTS: tuple[Mapping[str, Scalar], ...] = (
    {**CALLS, "arrivals": "at-once", "devices": 2},
    {**CALLS, "tenants": 3, "heavy_tenant_factor": 2.0, "load": 2.0, "num_blocks": 192},
)
"""Where one device has two caches, a second copy of the weights takes some 80 blocks."""


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, the first alone where ``brief``."""
    return first(POINTS, brief=brief)
