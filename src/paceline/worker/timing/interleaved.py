"""Interleaved timing of the techniques of one block: warm-up, order, stop rule.

This module knows nothing of what is timed. A candidate runs one observation and says how long it took; ``measure``
decides who runs next and when enough has been seen. All ranks run the same loop: durations are gathered from every rank
before any decision, so every rank decides alike without a leader.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

SETTLE_WINDOW = 5
SETTLE_TOLERANCE = 0.05
MEDIAN_Z = 1.959964
"""Normal quantile of the 95 % order-statistic interval of a median."""

Observation = tuple[float, int]
"""Duration in seconds, and start in nanoseconds on the clock that all ranks share."""
Gather = Callable[[list[list[float]]], list[list[list[float]]]]
"""Exchange one matrix of floats between ranks; the result holds every rank's matrix, in rank order."""


class Timed(Protocol):
    """One candidate inside a block: what is timed in turn with others."""

    label: str

    def observe(self) -> Observation:
        """Run one timed call (with its untimed preparation and verification) and return its duration."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The part of a suite's protocol that decides how long a block is measured."""

    order: str = "abba"
    ci_target: float = 0.02
    max_seconds: float = 2.0
    min_samples: int = 10
    max_samples: int = 2000
    warmup: str | int = "settle"
    warmup_seconds: float = 1.0

    @classmethod
    def of(cls, protocol: Mapping[str, Any]) -> Limits:
        """Take them from a suite's protocol."""
        return cls(**{f.name: protocol[f.name] for f in fields(cls)})


@dataclass(slots=True, kw_only=True)
class Series:
    """What one candidate's timed calls gave in one launch."""

    label: str
    samples: list[float] = field(default_factory=list)
    """Seconds of each call: the maximum over ranks."""
    per_rank: list[list[float]] = field(default_factory=list)
    """Seconds of each call on each rank."""
    skew: list[float] = field(default_factory=list)
    """Seconds between the first and the last rank's start of each call."""
    warmup: list[float] = field(default_factory=list)
    """Seconds of each warm-up call: kept, never analysed."""
    positions: list[int] = field(default_factory=list)
    """Position of each call in the block's sequence of timed calls."""
    warmup_reason: str = "none"
    stop_reason: str = "max_samples"


def rounds(order: str, num_arms: int, rng: random.Random, *, mirrored: bool = False) -> Iterator[list[int]]:
    """Yield the order of candidates in each round, for ever.

    ``abba`` mirrors every second round, so that a linear drift cancels within each pair of rounds; ``shuffle`` draws a
    new permutation from the seeded generator, equal on all ranks.

    Args:
        order: ``abba`` or ``shuffle``.
        num_arms: Number of candidates.
        rng: Seeded alike on every rank.
        mirrored: Whether the first round of ``abba`` is a mirrored one.
    """
    forward = list(range(num_arms))
    if mirrored:
        forward.reverse()
    while True:
        if order == "shuffle":
            shuffled = forward.copy()
            rng.shuffle(shuffled)
            yield shuffled
        else:
            yield forward
            yield forward[::-1]


def measure(
    candidates: Sequence[Timed],
    limits: Limits,
    *,
    clock_ns: Callable[[], int],
    gather: Gather,
    rng: random.Random,
    each_batch: Callable[[], None] = lambda: None,
    launch: int = 0,
) -> list[Series]:
    """Warm up and time all candidates of a block, interleaved.

    Args:
        candidates: The techniques; all of them are observed once in every round.
        limits: Warm-up, order and stop rule.
        clock_ns: The clock that the time budget is read from.
        gather: How ranks share their observations; identity for a single process.
        rng: Seeded alike on every rank.
        each_batch: Called before the first batch and after each, such as for telemetry.
        launch: Its number: where a launch may have a single round, every second launch begins with a mirrored one.

    Returns:
        One series for each candidate, never empty.
    """
    series = [Series(label=candidate.label) for candidate in candidates]
    order = rounds(limits.order, len(candidates), rng, mirrored=limits.min_samples == 1 and launch % 2 == 1)
    _warm_up(candidates, series, limits, order, clock_ns, gather)
    each_batch()
    position, batch, start_ns, reason = 0, min(2, limits.min_samples), clock_ns(), None
    while reason is None:
        observed: list[list[Observation]] = [[] for _ in candidates]
        remaining = limits.max_samples - len(series[0].samples)
        for _ in range(min(batch, remaining)):
            for candidate_index in next(order):
                observed[candidate_index].append(candidates[candidate_index].observe())
                series[candidate_index].positions.append(position)
                position += 1
        elapsed_s = _share(series, observed, (clock_ns() - start_ns) * 1e-9, gather)
        reason = _stop(series, limits, elapsed_s)
        each_batch()
        batch = _next_batch(series, limits, elapsed_s)
    for item in series:
        item.stop_reason = reason
    return series


def _share(
    series: list[Series], observed: list[list[Observation]], elapsed_s: float, gather: Gather
) -> float:
    """Gather a batch from all ranks, append it to the series, and return the slowest rank's elapsed time."""
    rows = [[elapsed_s]]
    for items in observed:
        rows.append([duration for duration, _ in items])
        rows.append([start * 1e-9 for _, start in items])
    everyone = gather(rows)
    for index, item in enumerate(series):
        for column in range(len(observed[index])):
            durations = [rank_rows[1 + 2 * index][column] for rank_rows in everyone]
            starts = [rank_rows[2 + 2 * index][column] for rank_rows in everyone]
            item.per_rank.append(durations)
            item.samples.append(max(durations))
            item.skew.append(max(starts) - min(starts))
    return max(rank_rows[0][0] for rank_rows in everyone)


def _stop(series: Sequence[Series], limits: Limits, elapsed_s: float) -> str | None:
    count = len(series[0].samples)
    if count >= limits.max_samples:
        return "max_samples"
    if elapsed_s >= limits.max_seconds:
        return "max_seconds"
    enough = count >= limits.min_samples
    if enough and all(relative_half_width(s.samples) <= limits.ci_target for s in series):
        return "ci_target"
    return None


def _next_batch(series: Sequence[Series], limits: Limits, elapsed_s: float) -> int:
    """Choose the rounds until the next decision: about an eighth of what is left, all of them even for ABBA."""
    done = len(series[0].samples)
    round_s = elapsed_s / max(done, 1)
    if round_s <= 0:
        return 2 * limits.min_samples + done % 2
    left = max(limits.max_seconds - elapsed_s, 0.0) / round_s
    batch = int(min(max(left / 8, 2), max(limits.min_samples - done, done / 2, 2)))
    if done % 2:  # after a single round: another one makes a pair
        return batch - 1 + batch % 2
    return batch + batch % 2


def _warm_up(
    candidates: Sequence[Timed],
    series: list[Series],
    limits: Limits,
    order: Iterator[list[int]],
    clock_ns: Callable[[], int],
    gather: Gather,
) -> None:
    if limits.warmup in ("none", 0):
        return
    fixed = limits.warmup if isinstance(limits.warmup, int) else None
    start_ns, reason = clock_ns(), None
    while reason is None:
        count = min(SETTLE_WINDOW, fixed - len(series[0].warmup)) if fixed else SETTLE_WINDOW
        times: list[list[float]] = [[] for _ in candidates]
        for _ in range(count):
            for candidate_index in next(order):
                times[candidate_index].append(candidates[candidate_index].observe()[0])
        everyone = gather([*times, [(clock_ns() - start_ns) * 1e-9]])
        for index, item in enumerate(series):
            item.warmup += [max(r[index][i] for r in everyone) for i in range(count)]
        elapsed_s = max(rank_rows[-1][0] for rank_rows in everyone)
        if fixed is not None:
            reason = "fixed" if len(series[0].warmup) >= fixed else None
        elif all(_settled(s.warmup) for s in series):
            reason = "settled"
        elif elapsed_s >= limits.warmup_seconds:
            reason = "time limit"
    for item in series:
        item.warmup_reason = reason


def _settled(times: Sequence[float]) -> bool:
    if len(times) < 2 * SETTLE_WINDOW:
        return False
    last, before = (
        median(times[-SETTLE_WINDOW:]),
        median(times[-2 * SETTLE_WINDOW : -SETTLE_WINDOW]),
    )
    return before > 0 and last / before >= 1 - SETTLE_TOLERANCE


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def relative_half_width(samples: Sequence[float]) -> float:
    """Return half the width of the median's 95 % order-statistic interval, relative to the median.

    The interval runs from the j-th smallest to the j-th largest value with j = ⌊(n − z√n)/2⌋; below n = 6 no such
    interval reaches 95 % and the result is infinite.
    """
    count = len(samples)
    if count < 6:
        return math.inf
    rank = max(int((count - MEDIAN_Z * math.sqrt(count)) / 2), 1)
    ordered = sorted(samples)
    middle = median(samples)
    if middle <= 0:
        return 0.0 if ordered[0] == ordered[-1] else math.inf
    return (ordered[count - rank] - ordered[rank - 1]) / 2 / middle


def bimodal(samples: Sequence[float]) -> bool:
    """Flag samples that fall into two well-separated groups.

    The sorted logarithms are split where the between-group variance is largest; the flag is raised when each group
    holds at least a tenth of the samples and their means lie more than four pooled standard deviations apart
    (a normal sample split at its mean reaches about 2.7).
    """
    values = sorted(math.log(s) for s in samples if s > 0)
    count = len(values)
    if count < 20:
        return False
    prefix, squares = [0.0], [0.0]
    for value in values:
        prefix.append(prefix[-1] + value)
        squares.append(squares[-1] + value * value)
    best, found = 0.0, False
    for split in range(max(count // 10, 2), count - max(count // 10, 2) + 1):
        left, right = prefix[split] / split, (prefix[-1] - prefix[split]) / (count - split)
        between = split * (count - split) * (left - right) ** 2
        if between > best:
            best = between
            spread_left = squares[split] / split - left**2
            spread_right = (squares[-1] - squares[split]) / (count - split) - right**2
            pooled = math.sqrt(max((spread_left + spread_right) / 2, 1e-18))
            found = (right - left) / pooled > 4.0
    return found


CARRY_OVER_Z = 4.0
CARRY_OVER_SHARE = 0.05
CARRY_OVER_SAMPLES = 8


def carry_over(samples: Sequence[float], positions: Sequence[int]) -> bool:
    """Flag calls whose time depends on who ran before: on caches that another technique filled, or work it left behind.

    Calls right after one of the same technique are held against those right after another's. The flag is raised when
    the medians of the two groups differ by more than a twentieth and a rank-sum test (Mann and Whitney 1947, normal
    approximation) puts the groups four standard deviations apart.
    """
    if len(positions) != len(samples):
        return False
    own = set(positions)
    after_own = [s for s, p in zip(samples, positions, strict=True) if p - 1 in own]
    after_other = [s for s, p in zip(samples, positions, strict=True) if p - 1 not in own and p > 0]
    few, many = len(after_own), len(after_other)
    if min(few, many) < CARRY_OVER_SAMPLES:
        return False
    ratio = median(after_other) / max(median(after_own), 1e-18)
    ordered = sorted([(s, 0) for s in after_own] + [(s, 1) for s in after_other])
    ranks = sum(rank for rank, (_, group) in enumerate(ordered, 1) if group == 0)
    expected, spread = few * (few + many + 1) / 2, math.sqrt(few * many * (few + many + 1) / 12)
    apart = abs(ranks - expected) / spread >= CARRY_OVER_Z
    return apart and abs(math.log(max(ratio, 1e-18))) > CARRY_OVER_SHARE


def summarise(series: Series, flags: Sequence[str] = ()) -> dict[str, Any]:
    """Return a series as plain data for an event, with flags that travel with the numbers."""
    ranks = list(zip(*series.per_rank, strict=True)) if series.per_rank else []
    medians = sorted(median(times) for times in ranks)
    return {
        "samples": series.samples,
        "positions": series.positions,
        "warmup": series.warmup,
        "warmup_reason": series.warmup_reason,
        "stop_reason": series.stop_reason,
        "flags": [
            *(["bimodal"] if bimodal(series.samples) else []),
            *(["carry-over"] if carry_over(series.samples, series.positions) else []),
            *flags,
        ],
        "cross_rank": {
            "median_of_rank_max": medians[-1] if medians else None,
            "median_of_rank_min": medians[0] if medians else None,
            "median_of_rank_median": median(medians) if medians else None,
            "arrival_skew_median_s": median(series.skew) if series.skew else None,
            "arrival_skew_max_s": max(series.skew) if series.skew else None,
        },
    }
