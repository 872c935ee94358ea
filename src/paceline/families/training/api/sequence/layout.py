"""Which positions of a sequence lie on which rank. Free of torch."""

from __future__ import annotations

from collections.abc import Callable

from paceline.families.collectives.api.problem import chunk_bounds

Runs = list[tuple[int, int]]
"""Runs of neighbours, in the order in which a rank holds them: first position of each, and the one after its last."""
Layout = Callable[[int, int], list[Runs]]
"""Length and ranks to the runs of each rank. Two runs have no position in common."""


def contiguous(length: int, size: int) -> list[Runs]:
    """Return each rank's one run; the first ranks have one more position where it does not divide."""
    return [_not_empty([bounds]) for bounds in chunk_bounds(length, size)]


def zigzag(length: int, size: int) -> list[Runs]:
    """Return each rank's two runs: the r-th of 2n and the r-th from the end, so that causal work is even.

    A position attends to those before it: early runs have little to do, late ones much (Brandon et al., "Striped
    Attention", 2023, and the zigzag of public ring-attention kernels).
    """
    # A run from each end: the work of runs r and 2n − 1 − r adds up to about the same for every r.
    bounds = chunk_bounds(length, 2 * size)
    return [_not_empty([bounds[rank], bounds[2 * size - 1 - rank]]) for rank in range(size)]


def positions(runs: Runs) -> list[int]:
    """Return the positions of some runs."""
    return [position for start, stop in runs for position in range(start, stop)]


def count(runs: Runs) -> int:
    """Return the number of their positions."""
    return sum(stop - start for start, stop in runs)


def causal_work(places: list[Runs]) -> list[int]:
    """Return for each rank how many (query, key) pairs its queries see."""
    return [sum(position + 1 for position in positions(own)) for own in places]


def _not_empty(runs: Runs) -> Runs:
    # With fewer positions than runs some are empty; a block of no keys would have no softmax.
    return [(start, stop) for start, stop in runs if stop > start]
