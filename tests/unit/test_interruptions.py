"""Inputs of calls to come are changed in the middle of a sandboxed pass: who has read them before their call is wrong.

The candidates here compute step by step, and are stopped before each step in turn: no machine's pace decides anything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from kernel_operators import OPERATORS
from torch import Tensor

from paceline.families.kernels.core.point import Point
from paceline.families.kernels.core.sandboxed.interruptions import (
    SHARE_AT_FIRST,
    SHARE_LATER,
    STOPS,
    Given,
    Interruptions,
)
from paceline.worker.ranks.session import CaseError

CALLS = 5
POINTS: dict[str, dict[str, Any]] = {
    "gemm": {"m": 4, "n": 3, "k": 5},
    "add_rmsnorm": {"tokens": 3, "hidden": 8},
    "dequant_gemm": {"m": 2, "n": 4, "k": 8, "bits": 4, "group": 4},
}
Memory = list[list[Tensor]]
Steps = Callable[[Callable[[int, int], None], Callable[[int], None]], Iterator[None]]
"""A candidate: it reads the inputs of a call (in a part of the pass) and writes a call's output, a step each."""


def in_turn(read: Callable[[int, int], None], write: Callable[[int], None]) -> Iterator[None]:
    for number in range(CALLS):
        yield read(number, number)
        yield write(number)


def all_in_the_last(read: Callable[[int, int], None], write: Callable[[int], None]) -> Iterator[None]:
    for number in range(CALLS):
        yield read(number, CALLS - 1)
    for number in range(CALLS):
        yield write(number)


def in_pairs(read: Callable[[int, int], None], write: Callable[[int], None]) -> Iterator[None]:
    for first in range(0, CALLS, 2):
        pair = range(first, min(first + 2, CALLS))
        for number in pair:
            yield read(number, first)
        for number in pair:
            yield write(number)


def all_in_the_first(read: Callable[[int, int], None], write: Callable[[int], None]) -> Iterator[None]:
    """Results are kept, and given out one by one."""
    for number in range(CALLS):
        yield read(number, 0)
    for number in range(CALLS):
        yield write(number)
        yield None


def point(operation: str) -> Point:
    params = {
        "op": operation,
        **POINTS[operation],
        "dtype": "float64",
        "threads": 1,
        "reference_timer": "none",
    }
    return Point(
        operator=OPERATORS[operation], params=params, dtype=torch.float64, device="cpu", timeout_s=1.0
    )


def stopped(of: Point, steps: Steps, after: int, *, seed: int) -> tuple[list[bool], Interruptions]:
    """Stop a candidate after some steps; return whether each call's output was right in the end."""
    rng = random.Random(seed)

    def draw() -> Any:
        return of.operator.draw(of.params, of.dtype, seed=rng.getrandbits(30), magnitude=1.0, device="cpu")

    given = [Given(draw=draw()) for _ in range(CALLS)]
    outputs: Memory = [
        [torch.full(spec.shape, float("nan"), dtype=spec.dtype) for spec in of.specs[1]] for _ in given
    ]
    interruptions = Interruptions(of, CALLS, draw, rng)
    assert interruptions.possible
    read: dict[int, Given] = {}

    def write(number: int) -> None:
        # The right result of what was read, as the oracle has it.
        one = read[number]
        factors: Sequence[float] = one.changed.output_factors if one.changed else [1.0] * len(outputs[number])
        for output, expected, factor in zip(outputs[number], one.draw.expected, factors, strict=True):
            output.copy_(expected.value * factor)

    for number, _ in enumerate(steps(lambda call, _part: read.__setitem__(call, given[call]), write)):
        if number == after:
            interruptions.change(given, outputs)
    right = [g.judged(of, out).passed for g, out in zip(given, outputs, strict=True)]
    return right, interruptions


@pytest.mark.parametrize("operation", POINTS)
def test_who_computes_in_turn_is_right_wherever_it_is_stopped(operation: str) -> None:
    telling = 0
    for after in range(2 * CALLS):
        right, interruptions = stopped(point(operation), in_turn, after, seed=after)
        assert all(right), after
        telling += interruptions.num_telling
    assert telling >= CALLS


@pytest.mark.parametrize("operation", POINTS)
@pytest.mark.parametrize(
    ("steps", "places"),
    [(all_in_the_last, range(1, 2 * CALLS - 2)), (all_in_the_first, range(1, CALLS)), (in_pairs, [1, 5])],
    ids=["all in the last", "all in the first", "in pairs"],
)
def test_who_computes_calls_together_is_wrong(operation: str, steps: Steps, places: Sequence[int]) -> None:
    for after in places:
        right, _ = stopped(point(operation), steps, after, seed=after)
        assert not all(right), f"stopped after step {after}"


def test_a_stop_that_comes_too_late_tells_nothing_and_the_next_comes_earlier() -> None:
    _, interruptions = stopped(point("gemm"), in_turn, 2 * CALLS - 1, seed=1)
    assert (interruptions.num_passes, interruptions.num_telling) == (1, 0)
    assert interruptions.wanted
    latest = max(interruptions.moment_ns(1000.0, 101_000.0) for _ in range(200))
    assert 1000 < latest <= 1000 + 0.7 * 100_000


def test_a_stop_that_came_too_soon_lets_the_next_come_later() -> None:
    of = point("gemm")
    untouched = [
        [torch.full(s.shape, float("nan"), dtype=s.dtype) for s in of.specs[1]] for _ in range(CALLS)
    ]
    done = [[torch.zeros(s.shape, dtype=s.dtype) for s in of.specs[1]] for _ in range(CALLS)]

    def draw() -> Any:
        return of.operator.draw(of.params, of.dtype, seed=1, magnitude=1.0, device="cpu")

    given = [Given(draw=draw())] * CALLS
    for number, output in enumerate(done):
        output[0].copy_(given[number].draw.expected[0].value)
    interruptions = Interruptions(of, CALLS, draw, random.Random(1))
    latest = []
    for outputs in (done, done, untouched, untouched, untouched):
        interruptions.change(list(given), outputs)
        latest.append(max(interruptions.moment_ns(0.0, 1e6) for _ in range(500)))
    assert latest == pytest.approx([0.665e6, 0.4655e6, 0.665e6, 0.95e6, 0.95e6], rel=0.01)


def test_at_no_time_is_a_candidate_unwatched() -> None:
    interruptions = Interruptions(point("gemm"), CALLS, lambda: pytest.fail("drawn"), random.Random(1))
    at_first = sum(interruptions.comes_now() for _ in range(2000)) / 2000
    interruptions.num_telling = STOPS
    assert not interruptions.wanted
    later = sum(interruptions.comes_now() for _ in range(2000)) / 2000
    assert (at_first, later) == pytest.approx((SHARE_AT_FIRST, SHARE_LATER), abs=0.05)
    # Half of 40 passes, with any chance to be seen in each that is stopped.
    assert (1 - SHARE_LATER) ** 20 < 0.02


@pytest.mark.parametrize("touched", [[CALLS - 1], range(CALLS)])
def test_an_output_that_was_only_touched_does_not_pass_for_a_call_that_has_begun(
    touched: Sequence[int],
) -> None:
    of = point("gemm")

    def draw() -> Any:
        return of.operator.draw(of.params, of.dtype, seed=1, magnitude=1.0, device="cpu")

    outputs = [[torch.full(s.shape, float("nan"), dtype=s.dtype) for s in of.specs[1]] for _ in range(CALLS)]
    for number in touched:
        outputs[number][0].view(-1)[:1] = 0.0
    with pytest.raises(CaseError, match=f"call 1 was not done when call {CALLS} had written"):
        Interruptions(of, CALLS, draw, random.Random(1)).change([Given(draw=draw())] * CALLS, outputs)


def test_passes_of_one_call_are_not_stopped() -> None:
    rng = random.Random(1)
    assert not Interruptions(point("gemm"), 1, lambda: pytest.fail("drawn"), rng).wanted
