"""The point at which every technique of ``scaled_gemm`` must be right; odd sizes around it are the gate's own."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.kernels.core.planning.conformance import in_every_dtype

POINT: Mapping[str, Scalar] = {"m": 130, "n": 64, "k": 304}
DTYPES = ("float32", "bfloat16", "float16")
"""Of the result: float64 is none of them."""


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the point, in one dtype where ``brief`` and otherwise in each."""
    return in_every_dtype(POINT, DTYPES, brief=brief)
