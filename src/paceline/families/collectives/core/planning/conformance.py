"""What points share at which techniques must conform: odd sizes, all dtypes, one to four ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.base.families.family import Scalar

RANKS = (1, 2, 3, 4)
SIZES_BYTES = (8, 52, 4100, 65_548, 1_048_576)
"""Not multiples of the number of ranks, save the last."""
SHAPED: Mapping[str, Scalar] = {"dtype": "float32", "payload": "gaussian"}


def sized_points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points of an operation with a size, without the number of ranks.

    Args:
        brief: One odd size in two dtypes; the gate, which sees many more sizes, runs for each dtype all the same.
    """
    found = floating_points(SIZES_BYTES, brief=brief)
    return found if brief else [*found, {"dtype": "int32", "payload": "integers", "size_bytes": 4100}]


def floating_points(sizes: Sequence[int], *, brief: bool) -> list[dict[str, Scalar]]:
    """Return those points whose elements are floating numbers, at some sizes in bytes."""
    found: list[dict[str, Scalar]] = [{**SHAPED, "size_bytes": s} for s in sizes]
    if brief:
        return [found[2], {"dtype": "bfloat16", "payload": "gaussian", "size_bytes": 4100}]
    found.append({"dtype": "float32", "payload": "heavy-tailed", "size_bytes": 4100})
    found.append({"dtype": "bfloat16", "payload": "gaussian", "size_bytes": 4100})
    # A multiple of eight bytes, unlike the sizes of narrower types.
    found.append({"dtype": "float64", "payload": "gradient-like", "size_bytes": 4104})
    return found


def shaped_points(shapes: Sequence[Mapping[str, Scalar]], *, brief: bool) -> list[dict[str, Scalar]]:
    """Return the points of an operation that some shapes describe, the second also in float64; it alone if brief."""
    found: list[dict[str, Scalar]] = [{**SHAPED, **shape} for shape in shapes]
    return [found[1]] if brief else [*found, {**found[1], "dtype": "float64"}]
