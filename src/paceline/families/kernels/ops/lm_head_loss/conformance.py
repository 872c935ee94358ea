"""The point at which every technique of ``lm_head_loss`` must be right; odd sizes around it are the gate's own."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.kernels.core.planning.conformance import in_every_dtype

POINT: Mapping[str, Scalar] = {"tokens": 23, "hidden": 40, "vocab": 307}


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the point, in one dtype where ``brief`` and otherwise in each."""
    return in_every_dtype(POINT, brief=brief)
