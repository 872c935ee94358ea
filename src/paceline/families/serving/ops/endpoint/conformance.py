"""Points at which a server must prove itself; the technique's default is a mock of known truth."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.serving.core.planning.conformance import first

RANKS = (1,)
PROTOCOL: Mapping[str, Scalar] = {"timeout": "120s"}
POINTS: tuple[Mapping[str, Scalar], ...] = (
    {"requests": 8, "prompt_tokens": 12, "output_tokens": 4, "arrivals": "closed", "concurrency": 4},
    {
        "requests": 8,
        "prompt_tokens": 12,
        "output_tokens": 4,
        "arrivals": "constant",
        "rate_per_s": 40.0,
        "workload": "sessions",
        "turns": 2,
        "think_s": 0.0,
    },
)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, the first alone where ``brief``."""
    return first(POINTS, brief=brief)
