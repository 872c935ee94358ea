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
    stream_k_then_whole,
)
from paceline.families.kernels.api.tiles import grouped_order

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
    assert computed(stream_k_then_whole(tiles, workers)) == wanted
    assert computed(fixed_split(tiles, workers, splits)) == wanted


@given(JOBS, st.integers(1, 64))
def test_stream_k_shares_differ_by_one_tile_at_most(tiles: list[int], workers: int) -> None:
    loads = [sum(s.end - s.begin for s in spans) for spans in stream_k(tiles, workers)]
    assert max(loads) - min(loads) <= 1


@given(JOBS, st.integers(1, 64))
def test_stream_k_shares_few_jobs(tiles: list[int], workers: int) -> None:
    shared = Counter(span.job for spans in stream_k(tiles, workers) for span in spans)
    assert sum(count - 1 for count in shared.values()) <= workers - 1


@given(st.integers(1, 400), st.integers(1, 20), st.integers(1, 64), st.integers(0, 2))
def test_the_hybrid_takes_as_long_as_equal_shares_and_shares_fewer_jobs(
    jobs: int, steps: int, workers: int, shared_rounds: int
) -> None:
    schedule = stream_k_then_whole([steps] * jobs, workers, shared_rounds=shared_rounds)
    assert max(sum(s.end - s.begin for s in spans) for spans in schedule) == -(-jobs * steps // workers)
    parts = [span for spans in schedule for span in spans if span.end - span.begin < steps]
    assert len({span.job for span in parts}) < workers * (1 + shared_rounds)
    # Shared work comes first, so that sums of parts hide behind whole jobs.
    assert all(spans == sorted(spans, key=lambda span: span.job) for spans in schedule)


@given(st.integers(1, 400), st.integers(1, 20), st.integers(1, 64), st.integers(0, 30))
def test_jobs_are_shared_only_where_that_saves_more_than_it_costs(
    jobs: int, steps: int, workers: int, cost: int
) -> None:
    schedule = stream_k_then_whole([steps] * jobs, workers, cost=cost)
    assert computed(schedule) == Counter((job, tile) for job in range(jobs) for tile in range(steps))
    longest = max(sum(s.end - s.begin for s in spans) for spans in schedule)
    whole = -(-jobs // workers) * steps
    shares = any(span.end - span.begin < steps for spans in schedule for span in spans)
    assert longest < whole - cost if shares else longest <= whole


@given(st.integers(1, 20), st.integers(1, 9))
def test_the_hybrid_shares_nothing_where_jobs_fill_rounds(rounds: int, workers: int) -> None:
    schedule = stream_k_then_whole([7] * (rounds * workers), workers)
    assert all((span.begin, span.end) == (0, 7) for spans in schedule for span in spans)
    assert {len(spans) for spans in schedule} == {rounds}


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12))
def test_a_grouped_order_has_every_tile_once(rows: int, columns: int, group: int) -> None:
    assert sorted(grouped_order(rows, columns, group)) == list(range(rows * columns))


def test_tiles_of_one_round_need_few_rows_and_columns() -> None:
    together = grouped_order(64, 32, 8)[:WORKERS]
    needed = len({tile // 32 for tile in together}) + len({tile % 32 for tile in together})
    # Row by row it would be five rows and all 32 columns.
    assert needed <= 8 + -(-WORKERS // 8) + 1


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
