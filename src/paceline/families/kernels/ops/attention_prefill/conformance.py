"""The point at which every technique of ``attention_prefill`` must be right; odd sizes around it are the gate's own."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.kernels.core.planning.conformance import in_every_dtype

POINT: Mapping[str, Scalar] = {"batch": 2, "tokens": 75, "heads": 4, "kv_heads": 2, "head_dim": 24}


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the point, in one dtype where ``brief`` and otherwise in each."""
    return in_every_dtype(POINT, brief=brief)
