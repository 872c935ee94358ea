"""Who is timed when: the rounds of a block on a clock of the test's own."""

from __future__ import annotations

import random

import pytest

from paceline.worker.timing.interleaved import Limits, measure


class Clock:
    """Time that passes where a call says so, in nanoseconds."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.called: list[str] = []


class Call:
    """Takes its time, and notes when it was."""

    def __init__(self, label: str, seconds: float, clock: Clock) -> None:
        self.label, self._seconds, self._clock = label, seconds, clock

    def observe(self) -> tuple[float, int]:
        start_ns = self._clock.now_ns
        self._clock.now_ns += round(self._seconds * 1e9)
        self._clock.called.append(self.label)
        return self._seconds, start_ns


def order_of(seconds: float, *, launch: int, min_samples: int, max_seconds: float = 0.5) -> str:
    clock = Clock()
    calls = [Call(label, seconds, clock) for label in "ABC"]
    limits = Limits(max_seconds=max_seconds, min_samples=min_samples, warmup="none")
    series = measure(
        calls,
        limits,
        clock_ns=lambda: clock.now_ns,
        gather=lambda rows: [rows],
        rng=random.Random(0),
        launch=launch,
    )
    for item in series:
        assert [clock.called[p] for p in item.positions] == [item.label] * len(item.samples)
    return "".join(clock.called)


@pytest.mark.parametrize(("launch", "expected"), [(0, "ABC"), (1, "CBA"), (2, "ABC"), (3, "CBA")])
def test_a_single_round_is_mirrored_in_every_second_launch(launch: int, expected: str) -> None:
    assert order_of(0.2, launch=launch, min_samples=1) == expected


@pytest.mark.parametrize("launch", [0, 1])
def test_two_rounds_mirror_each_other_whatever_the_launch(launch: int) -> None:
    assert order_of(0.2, launch=launch, min_samples=2) == "ABCCBA"
    assert order_of(0.2, launch=launch, min_samples=10) == "ABCCBA"


@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.03, 0.08, 0.12])
@pytest.mark.parametrize("launch", [0, 1])
@pytest.mark.parametrize("min_samples", [1, 2, 3, 7])
def test_rounds_beyond_one_come_in_mirrored_pairs(seconds: float, launch: int, min_samples: int) -> None:
    """So that a linear drift cancels: each call's mean position is that of the others."""
    order = order_of(seconds, launch=launch, min_samples=min_samples)
    assert len(order) % 6 == 0
    means = {label: sum(i for i, c in enumerate(order) if c == label) / order.count(label) for label in "ABC"}
    assert len(set(means.values())) == 1


@pytest.mark.parametrize(("seconds", "rounds"), [(0.1, 2), (0.16, 2), (0.17, 1), (0.5, 1)])
def test_calls_of_half_a_launch_are_timed_twice_and_longer_ones_once(seconds: float, rounds: int) -> None:
    """Three calls in 0.5 s: one more round makes a pair, and no more follow."""
    assert len(order_of(seconds, launch=0, min_samples=1)) == 3 * rounds


def test_a_single_round_takes_no_longer_than_its_calls() -> None:
    assert order_of(3.0, launch=0, min_samples=1) == "ABC"
    assert len(order_of(3.0, launch=0, min_samples=3)) == 6
