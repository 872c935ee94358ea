"""Which blocks take their turn in which night: nothing waits for ever, and nothing is divided without need."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.workflows.nightly.schedule import (
    DAY_S,
    SPARE,
    Due,
    DueBlock,
    Place,
    Share,
    a_day_later,
    cost_s,
    forecast,
    parts,
    tonight,
)

HOUR = 3600.0


def unit(name: str, *hours: float, age: float = math.inf, priority: float = 1.0, start: float = 0.0) -> Due:
    blocks = tuple(
        DueBlock(block=f"{name}{n}", likely_s=h * HOUR, group="g", start_s=start * HOUR)
        for n, h in enumerate(hours)
    )
    place = (name, "r", "standard")
    return Due(place=place, priority=priority, age_s=age, likely_s=cost_s(blocks), blocks=blocks)


def names(shares: list[Share]) -> list[str]:
    return [" ".join(share.blocks) for share in shares]


def test_what_fits_into_a_night_is_measured_whole_and_waits_for_a_night_rather_than_be_divided() -> None:
    due = [unit("a", 5.0, age=3 * DAY_S), unit("b", 2.0, 2.0, age=2 * DAY_S), unit("c", 2.5, age=DAY_S)]
    first, second = forecast(due, budget_s=8 * HOUR, nights=2)
    assert names(first) == ["a0", "c0"], "b would end too late, and c fits"
    assert names(second)[0] == "b0 b1"


def test_what_is_longer_than_a_night_is_measured_in_shares() -> None:
    due = [unit("long", *[3.0] * 5)]
    nights = list(forecast(due, budget_s=8 * HOUR, nights=3))
    assert [names(n) for n in nights] == [["long0 long1"], ["long2 long3"], ["long4 long0"]]


def test_what_stays_free_goes_to_some_blocks_of_what_waits() -> None:
    due = [unit("a", 5.0, age=2 * DAY_S), unit("b", 2.0, 2.0, age=DAY_S)]
    assert names(tonight(due, budget_s=8 * HOUR)) == ["a0", "b0"]
    nearly = [unit("a", 7.5, age=2 * DAY_S), unit("b", 0.4, 0.4, age=DAY_S)]
    assert names(tonight(nearly, budget_s=8 * HOUR)) == ["a0"], "half an hour of eight is not worth it"


def test_the_most_urgent_begins_though_no_night_is_long_enough_and_though_the_night_began_late() -> None:
    (share,) = tonight([unit("a", 12.0), unit("b", 6.0, age=DAY_S)], budget_s=8 * HOUR)
    assert (share.blocks, share.too_long) == (("a0",), True)
    (late,) = tonight([unit("a", 7.9)], budget_s=8 * HOUR, elapsed_s=0.5 * HOUR)
    assert (late.blocks, late.too_long) == (("a0",), True)
    assert tonight([unit("a", 12.0)], budget_s=8 * HOUR, first=False) == []
    assert not tonight([unit("a", 7.0)], budget_s=8 * HOUR)[0].too_long


def test_blocks_that_share_a_process_group_pay_for_its_start_once() -> None:
    assert cost_s(unit("a", 1.0, 1.0, start=0.5).blocks) == 2.5 * HOUR
    shares = tonight([unit("a", 1.0, 1.0, 1.0, start=0.5)], budget_s=2.6 * HOUR)
    assert names(shares) == ["a0 a1"]


def test_parts_of_one_suite_that_one_night_measures_become_one_again() -> None:
    blocks = unit("a", 1.0, 1.0).blocks
    due = parts(("a", "r", "standard"), 1.0, blocks, {"a0": DAY_S})
    assert [p.age_s for p in due] == [DAY_S, math.inf]
    (share,) = tonight(due, budget_s=8 * HOUR)
    assert set(share.blocks) == {"a0", "a1"}
    (joined,) = a_day_later(due, {(share.place, b) for b in share.blocks})
    assert joined.age_s == DAY_S


def test_work_that_fits_into_the_budget_is_all_measured_every_night() -> None:
    due = [unit("a", 1.0, 1.0), unit("b", 2.0), unit("c", 3.0, priority=0.1)]
    for shares in forecast(due, budget_s=8 * HOUR, nights=4):
        assert sorted(names(shares)) == ["a0 a1", "b0", "c0"]


SUITES = st.lists(st.lists(st.floats(0.01, 4.0), min_size=1, max_size=8), min_size=1, max_size=12)


@settings(max_examples=100)
@given(suites=SUITES, priorities=st.lists(st.floats(0.1, 5.0), min_size=12, max_size=12))
def test_every_block_is_measured_within_the_nights_that_its_work_needs_and_again_and_again(
    suites: list[list[float]], priorities: list[float]
) -> None:
    budget = 8.0
    due = [unit(chr(97 + n), *hours, priority=priorities[n]) for n, hours in enumerate(suites)]
    work, longest = sum(map(sum, suites)), max(map(max, suites))
    need = math.ceil(work / (budget - max(longest, SPARE * budget))) + 1
    seen: dict[tuple[Place, str], list[int]] = defaultdict(list)
    nights = 60
    for night, shares in enumerate(forecast(due, budget_s=budget * HOUR, nights=nights)):
        assert sum(s.likely_s for s in shares) <= budget * HOUR + 1e-6
        for share in shares:
            for block in share.blocks:
                seen[share.place, block].append(night)
    everything = {(part.place, b.block) for part in due for b in part.blocks}
    assert set(seen) == everything
    assert max(when[0] for when in seen.values()) < need
    # A priority of 1/50 of another's makes a block wait fifty times as long, and no longer.
    ratio = max(priorities) / min(priorities)
    for when in seen.values():
        gaps = [b - a for a, b in pairwise(when)]
        assert max(gaps, default=0) <= (need + 1) * (ratio + 1)
