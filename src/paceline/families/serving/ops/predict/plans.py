"""The configurations of the engine that are predicted, and then executed. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.families.serving.api.predicting import Configuration

PLANS = ((16, 256, 1.0), (4, 256, 1.0), (32, 64, 0.5), (32, 256, 0.25), (8, 64, 0.5), (64, 256, 0.15))
"""Most requests and tokens of a step, and the share of the point's blocks that the cache has."""


def configurations(params: Mapping[str, Any]) -> list[Configuration]:
    """Return as many plans as a point asks for."""
    size, blocks = int(params["block_size"]), int(params["num_blocks"])
    return [
        Configuration(max_batch=b, token_budget=t, num_blocks=max(2, round(blocks * share)), block_size=size)
        for b, t, share in PLANS[: int(params["plans"])]
    ]
