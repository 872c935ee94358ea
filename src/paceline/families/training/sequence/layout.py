"""Which positions of a sequence lie on which rank. Free of torch."""

from __future__ import annotations

from paceline.families.collectives.problem import chunk_bounds


def contiguous(length: int, size: int) -> list[list[int]]:
    """Return each rank's positions: one run of neighbours; the first ranks have one more where it does not divide."""
    return [list(range(start, stop)) for start, stop in chunk_bounds(length, size)]


def zigzag(length: int, size: int) -> list[list[int]]:
    """Return each rank's positions: the r-th run of 2n and the r-th from the end, so that causal work is even.

    A position attends to those before it: early runs have little to do, late ones much (Brandon et al., "Striped
    Attention", 2023, and the zigzag of public ring-attention kernels).
    """
    bounds = chunk_bounds(length, 2 * size)
    pairs = [(bounds[rank], bounds[2 * size - 1 - rank]) for rank in range(size)]
    return [[*range(*early), *range(*late)] for early, late in pairs]


def causal_work(places: list[list[int]]) -> list[int]:
    """Return for each rank how many (query, key) pairs its queries see."""
    return [sum(position + 1 for position in own) for own in places]
