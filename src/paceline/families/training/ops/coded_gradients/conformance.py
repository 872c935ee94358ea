"""Points at which every technique of ``coded_gradients`` must prove itself."""

from __future__ import annotations

from paceline.base.families.family import Scalar

RANKS = (1,)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, whether ``brief`` or not: few stragglers, many, and none."""
    odd: dict[str, Scalar] = {"workers": 7, "jobs": 23, "model_dim": 5, "data_samples": 41}
    return [
        {**odd, "slow_begin": 0.05},
        {**odd, "slow_begin": 0.5, "slow_end": 0.3},
        {**odd, "slow_begin": 0.0, "jobs": 1},
    ]
