"""The point at which every technique of ``dequant_gemm`` must be right; odd sizes around it are the gate's own."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar
from paceline.families.kernels.core.planning.conformance import in_every_dtype

POINT: Mapping[str, Scalar] = {"m": 5, "n": 72, "k": 192, "bits": 3, "group": 32}

OTHER_BITS = (1, 2, 4, 5, 6, 7, 8)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the point, in one dtype where ``brief`` and otherwise in each, and then at every other width."""
    widths = [{**POINT, "dtype": "float32", "bits": bits} for bits in OTHER_BITS]
    return [*in_every_dtype(POINT, brief=brief), *widths]
