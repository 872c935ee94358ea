"""What turns say of a bound on a ratio, on recorded numbers: it holds, it does not hold, or nobody can tell."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from measuring import CANNOT_TELL, DECIDED, FAILS, HOLDS
from side_by_side import SLOWDOWN, conclude, conclude_planted, judge, mirrored, until_decided

from paceline.stats.sequential import design

START = [
    (0.0962, 0.0338), (0.0992, 0.0313), (0.1024, 0.0339), (0.0958, 0.0327), (0.0989, 0.0348), (0.1105, 0.0317),
    (0.1052, 0.0334), (0.1072, 0.0329), (0.1090, 0.0361), (0.1019, 0.0335),
]  # fmt: skip
"""Processor seconds of a launch's start and of a bare one, recorded in turns on a busy machine."""
TIMES = [
    (0.0833, 0.0494), (0.1252, 0.0397), (0.0983, 0.0338), (0.1181, 0.0512), (0.0965, 0.0351), (0.0935, 0.0325),
    (0.1362, 0.0635), (0.1420, 0.0468), (0.1430, 0.0554), (0.1218, 0.0485),
]  # fmt: skip
"""Seconds of the same."""


def replay(pairs: list[tuple[float, float]], slowed: float = 1.0) -> Iterator[tuple[float, float]]:
    return ((slowed * thing, reference) for thing, reference in itertools.cycle(pairs))


@pytest.mark.parametrize(
    ("pairs", "slowed", "most", "outcome", "turns"),
    [
        (START, 1.0, 3.7, HOLDS, 4),
        (START, SLOWDOWN, 3.7, FAILS, 4),
        (START, 1.0, 3.1, CANNOT_TELL, 40),
        (TIMES, 1.0, 3.3, HOLDS, 9),
        (TIMES, SLOWDOWN, 3.3, FAILS, 21),
        (TIMES, 1.0, 2.6, CANNOT_TELL, 40),
    ],
)
def test_a_bound_is_decided_as_soon_as_the_interval_is_on_one_side(
    pairs: list[tuple[float, float]], slowed: float, most: float, outcome: str, turns: int
) -> None:
    found = until_decided(replay(pairs, slowed).__next__, most, now_s=lambda: 0.0)
    assert (found.outcome, len(found.pairs)) == (outcome, turns), str(found)


def test_the_budget_ends_the_turns_with_what_they_say() -> None:
    instants = iter(range(100))
    found = until_decided(replay(START).__next__, 3.1, budget_s=7, now_s=lambda: next(instants))
    assert (found.outcome, len(found.pairs)) == (CANNOT_TELL, 7 + (7 in design(4, 40, budget=True).looks))
    instants = iter(range(100))
    found = until_decided(replay(START).__next__, 4.5, budget_s=3, now_s=lambda: next(instants))
    assert (found.outcome, len(found.pairs)) == (HOLDS, 3)
    found = until_decided(replay(START).__next__, 4.5, budget_s=0, now_s=lambda: 0.0)
    assert len(found.pairs) == 2


def test_a_ratio_at_the_bound_is_seldom_told_from_it() -> None:
    rng, outcomes = random.Random(5), []
    for _ in range(200):
        turn = lambda: (rng.lognormvariate(0.0, 0.1), rng.lognormvariate(0.0, 0.1))  # noqa: E731
        outcomes.append(until_decided(turn, 1.0, now_s=lambda: 0.0).outcome)
    assert outcomes.count(CANNOT_TELL) >= 184


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0, -1.0])
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_no_time_is_refused(bad: float, side: int) -> None:
    pair = (bad, 1.0) if side == 0 else (1.0, bad)
    with pytest.raises(ValueError, match="times are positive"):
        judge([(1.0, 1.0), pair], 2.0, level=0.05)


def test_one_turn_gives_no_interval() -> None:
    with pytest.raises(ValueError, match="1 turns"):
        judge([(1.0, 1.0)], 2.0, level=0.05)


def test_a_turn_is_mirrored_and_takes_the_least_of_two() -> None:
    orders = set()
    for seed in range(8):
        called: list[str] = []
        times = {"A": iter((3.0, 2.0)), "B": iter((5.0, 7.0))}

        def one(name: str, called: list[str] = called, times: dict[str, Iterator[float]] = times) -> float:
            called.append(name)
            return next(times[name])

        assert mirrored(lambda one=one: one("A"), lambda one=one: one("B"), random.Random(seed))() == (
            2.0,
            5.0,
        )
        orders.add("".join(called))
    assert orders == {"ABBA", "BAAB"}


@pytest.mark.parametrize(
    ("most", "slowed", "plain", "planted"),
    [
        (3.7, 1.0, HOLDS, FAILS),
        (3.7, SLOWDOWN, FAILS, HOLDS),
        (3.1, 1.0, CANNOT_TELL, CANNOT_TELL),
    ],
)
def test_a_check_says_what_it_found_and_its_test_the_opposite(
    most: float, slowed: float, plain: str, planted: str
) -> None:
    found = until_decided(replay(START, slowed).__next__, most, now_s=lambda: 0.0)
    ends = {HOLDS: (), FAILS: (pytest.fail.Exception,), CANNOT_TELL: (pytest.skip.Exception,)}
    for finish, outcome in ((conclude, plain), (conclude_planted, planted)):
        recorded: dict[str, object] = {}
        if ends[outcome]:
            with pytest.raises(ends[outcome]):
                finish(found, "a time", recorded.__setitem__)
        else:
            finish(found, "a time", recorded.__setitem__)
        assert recorded.pop(DECIDED) == outcome
        (figure,) = recorded.values()
        assert isinstance(figure, dict)
        assert figure["value"] == found.ratio.value
        assert figure["unit"] == "ratio"
