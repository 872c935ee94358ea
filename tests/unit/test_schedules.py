"""Schedules: nothing computed twice or left out, and the balance that stream-K promises."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.families.kernels.api.context_lengths import SPREADS, context_lengths
from paceline.families.kernels.api.schedules import (
    Schedule,
    fixed_split,
    imbalance,
    occupying_splits,
    stream_k,
)

JOBS = st.lists(st.integers(0, 40), min_size=1, max_size=30)
TILE = 128
WORKERS = 132
"""Multiprocessors of an H200."""
BALANCED = 1.05
UNBALANCED = 1.3


def computed(schedule: Schedule) -> Counter[tuple[int, int]]:
    return Counter(
        (span.job, tile) for spans in schedule for span in spans for tile in range(span.begin, span.end)
    )


@given(JOBS, st.integers(1, 64), st.integers(1, 9))
def test_every_tile_is_computed_once(tiles: list[int], workers: int, splits: int) -> None:
    wanted = Counter((job, tile) for job, count in enumerate(tiles) for tile in range(count))
    assert computed(stream_k(tiles, workers)) == wanted
    assert computed(fixed_split(tiles, workers, splits)) == wanted


@given(JOBS, st.integers(1, 64))
def test_stream_k_shares_differ_by_one_tile_at_most(tiles: list[int], workers: int) -> None:
    loads = [sum(s.end - s.begin for s in spans) for spans in stream_k(tiles, workers)]
    assert max(loads) - min(loads) <= 1


@given(JOBS, st.integers(1, 64))
def test_stream_k_shares_few_jobs(tiles: list[int], workers: int) -> None:
    shared = Counter(span.job for spans in stream_k(tiles, workers) for span in spans)
    assert sum(count - 1 for count in shared.values()) <= workers - 1


@pytest.mark.parametrize(
    ("jobs", "tiles", "workers", "wanted"),
    [
        # The example of FlashAttention's own comment: two rounds of 96 of 108 rather than one of 48.
        (48, 100, 108, 2),
        (8, 1024, 132, 15),
        (32, 1024, 132, 4),
        (106, 1024, 132, 1),
        (8, 4, 132, 1),
        (8, 9, 132, 8),
        (1, 1024, 132, 109),
    ],
)
def test_a_split_fills_the_workers_and_no_more(jobs: int, tiles: int, workers: int, wanted: int) -> None:
    assert occupying_splits(jobs, tiles, workers) == wanted


def tiles_of(batch: int, kv_heads: int, context: int, spread: str) -> list[int]:
    lengths = context_lengths({"batch": batch, "context": context, "spread": spread})
    return [-(-length // TILE) for length in lengths for _ in range(kv_heads)]


def ragged_cases() -> list[tuple[int, int, int, str]]:
    """Return (batch, kv heads, longest context, spread) with at least twenty tiles for each worker."""
    rng = random.Random(3)
    found: list[tuple[int, int, int, str]] = []
    for spread in SPREADS:
        drawn = (
            (rng.randrange(1, 24), rng.choice([1, 2, 4, 8]), rng.randrange(40_000, 1_100_000), spread)
            for _ in range(200)
        )
        found += [case for case in drawn if sum(tiles_of(*case)) >= 20 * WORKERS][:15]
    return found


@pytest.mark.parametrize("case", ragged_cases())
def test_lean_attention_is_balanced_where_a_worker_has_twenty_tiles(case: tuple[int, int, int, str]) -> None:
    assert imbalance(stream_k(tiles_of(*case), WORKERS)) <= BALANCED


def test_there_are_cases_of_every_spread() -> None:
    assert Counter(case[3] for case in ragged_cases()) == dict.fromkeys(SPREADS, 15)


def test_a_fixed_split_leaves_workers_waiting_where_lean_attention_does_not() -> None:
    tiles = tiles_of(6, 8, 262_144, "one-long")
    assert sum(tiles) >= 20 * WORKERS
    assert min(imbalance(fixed_split(tiles, WORKERS, splits)) for splits in (1, 2, 4, 8)) >= UNBALANCED
    assert imbalance(stream_k(tiles, WORKERS)) <= BALANCED


def test_no_work_is_balanced() -> None:
    assert imbalance(stream_k([], 4)) == 1.0
    assert stream_k([0, 0], 3) == [[], [], []]
