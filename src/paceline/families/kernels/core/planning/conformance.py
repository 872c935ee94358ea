"""What conformance points of several operations share; see ``paceline.workflows.conformance``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.base.families.family import Scalar

DTYPES = ("float32", "bfloat16", "float16", "float64")


def in_every_dtype(
    point: Mapping[str, Scalar], dtypes: Sequence[str] = DTYPES, *, brief: bool
) -> list[dict[str, Scalar]]:
    """Return a point in each dtype, in the first one alone where ``brief``."""
    return [{**point, "dtype": dtype} for dtype in (dtypes[:1] if brief else dtypes)]
