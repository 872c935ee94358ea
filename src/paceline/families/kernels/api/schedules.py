"""Who computes which tiles: schedules as plain functions, tested by themselves.

Work is a list of jobs (an attention head's context, an output tile's reduction), each a number of equal tiles. A
schedule gives every worker a list of spans; a job that several workers share needs a reduction of their partial
results. Sources: Osama et al., "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication
on the GPU", arXiv 2301.03598; Sanovar et al., "Lean Attention", arXiv 2405.10480.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import ceil


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive tiles of one job."""

    job: int
    begin: int
    """First tile within the job."""
    end: int
    """Tile after the last."""


Schedule = list[list[Span]]
"""For each worker, what it computes, in order."""


def stream_k(tiles: Sequence[int], workers: int) -> Schedule:
    """Divide all tiles equally: worker w takes tiles ⌊wT/W⌋ to ⌊(w+1)T/W⌋ of the concatenation of all jobs.

    Args:
        tiles: Tiles of each job.
        workers: W; workers without a tile get an empty list.
    """
    total = sum(tiles)
    # Rounded down one by one, so that shares differ by one tile at most.
    bounds = [worker * total // workers for worker in range(workers + 1)]
    schedule: Schedule = [[] for _ in range(workers)]
    worker, start = 0, 0
    for job, count in enumerate(tiles):
        position = start
        while position < start + count:
            # With more workers than tiles some shares are empty.
            while position >= bounds[worker + 1]:
                worker += 1
            stop = min(bounds[worker + 1], start + count)
            schedule[worker].append(Span(job, position - start, stop - start))
            position = stop
        start += count
    return schedule


def stream_k_then_whole(
    tiles: Sequence[int], workers: int, *, shared_rounds: int = 0, cost: int = 0
) -> Schedule:
    """Divide what full rounds of jobs leave over as :func:`stream_k` does; then deal out whole jobs in full rounds.

    The paper's hybrid of stream-K and whole jobs. Where jobs fill rounds exactly, or an incomplete round costs less
    than sharing it, nobody shares a job.

    Args:
        tiles: Tiles of each job; rounds are even where all have the same.
        workers: W.
        shared_rounds: Full rounds that are shared as well.
        cost: Of sharing, in the time that one worker takes for a tile.
    """
    count = len(tiles)
    rounds, left = divmod(count, workers)
    shared = left + min(shared_rounds, rounds) * workers if left else 0
    saved = max(tiles, default=0) - -(-sum(tiles[:left]) // workers)
    if saved <= cost:
        shared = 0
    schedule = stream_k(tiles[:shared], workers)
    for job in range(shared, count):
        schedule[(job - shared) % workers].append(Span(job, 0, tiles[job]))
    return schedule


def fixed_split(tiles: Sequence[int], workers: int, splits: int) -> Schedule:
    """Divide every job into the same number of parts and hand the parts out in order, as a GPU's blocks are.

    Each part goes to the worker that is free first, which is how hardware assigns blocks to multiprocessors.

    Args:
        tiles: Tiles of each job.
        workers: Multiprocessors.
        splits: Parts of each job; parts without a tile are left out.
    """
    schedule: Schedule = [[] for _ in range(workers)]
    free = [(0, worker) for worker in range(workers)]
    heapify(free)
    for job, count in enumerate(tiles):
        size = -(-count // splits)
        # A job without tiles has a size of 0, which is no step.
        for begin in range(0, count, max(size, 1)):
            span = Span(job, begin, min(begin + size, count))
            load, worker = free[0]
            schedule[worker].append(span)
            # Ordered by load and then by number, so that ties are dealt out the same way each time.
            heapreplace(free, (load + span.end - span.begin, worker))
    return schedule


def each_split(tiles: Sequence[int], splits: int) -> Schedule:
    """Give every part of every job a worker of its own: the hardware deals them out.

    Args:
        tiles: Tiles of each job.
        splits: Parts of each job.
    """
    parts = [span for worker in fixed_split(tiles, 1, splits) for span in worker]
    return [[span] for span in parts]


def occupying_splits(jobs: int, tiles: int, workers: int, *, most: int = 128) -> int:
    """Return into how many parts FlashAttention-3 would cut every job, so that workers have something to do.

    Where jobs alone keep four fifths of the workers busy, one. Otherwise the ``jobs · splits`` parts run in rounds, the
    last of which may leave workers idle; of the numbers whose rounds are filled at least 0.85 times as well as those of
    the best, the smallest is taken, since each part is written and read once more.

    Source: ``num_splits_heuristic`` in ``hopper/heuristics.h`` of Dao-AILab/flash-attention (as of commit 13d0fd9). Its
    further rule, for heads beyond the second-level cache, needs many blocks of queries and never applies to decoding.

    Args:
        jobs: Sequences times key heads.
        tiles: Tiles of the longest job; up to four are not worth a split.
        workers: Multiprocessors.
        most: Splits at the most.
    """
    if jobs >= 0.8 * workers or tiles <= 4:
        return 1
    filled = {}
    for splits in range(1, min(most, workers, tiles) + 1):
        rounds = jobs * splits / workers
        filled[splits] = rounds / ceil(rounds)
    best = max(filled.values())
    return next(splits for splits, share in filled.items() if share >= 0.85 * best)


def one_each(tiles: Sequence[int]) -> Schedule:
    """Give every job a worker of its own."""
    return each_split(tiles, 1)


def imbalance(schedule: Schedule) -> float:
    """Return the most tiles of a worker over the mean: the factor by which the slowest worker delays the result."""
    loads = [sum(span.end - span.begin for span in spans) for spans in schedule]
    # Idle workers count in the mean: they are what an uneven split wastes.
    return max(loads) * len(loads) / sum(loads) if sum(loads) else 1.0
