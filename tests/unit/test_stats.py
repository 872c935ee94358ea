"""Statistics against scipy, against closed forms, and against their promise: the coverage of the intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from paceline.stats.estimates import (
    BOOTSTRAP_FROM,
    FEW,
    Launches,
    compare_difference,
    compare_ratio,
    estimate_value,
    launch_statistic,
    median,
    wilson,
)
from paceline.stats.unpaired import compare_unpaired, compare_unpaired_difference

POSITIVE = st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=9)
PAIRS = st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=2, max_size=9)


def side(values: Sequence[float], samples: Sequence[Sequence[float]] = ()) -> Launches:
    return Launches(values=dict(enumerate(values)), samples=dict(enumerate(samples)))


@given(POSITIVE)
def test_a_positive_value_has_the_t_interval_of_its_logarithms(values: list[float]) -> None:
    logs = np.log(values)
    assume(np.ptp(logs) > 1e-6)
    found = estimate_value(side(values))
    low, high = scipy_stats.t.interval(0.95, len(logs) - 1, loc=logs.mean(), scale=scipy_stats.sem(logs))
    assert (found.low, found.value, found.high) == pytest.approx(
        (math.exp(low), math.exp(logs.mean()), math.exp(high)), rel=1e-9
    )


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9))
def test_a_value_of_any_sign_has_the_t_interval_of_itself(values: list[float]) -> None:
    assume(min(values) <= 0 and np.ptp(values) > 1e-6)
    found = estimate_value(side(values))
    low, high = scipy_stats.t.interval(
        0.95, len(values) - 1, loc=np.mean(values), scale=scipy_stats.sem(values)
    )
    assert (found.low, found.value, found.high) == pytest.approx(
        (low, np.mean(values), high), rel=1e-9, abs=1e-9
    )


@given(PAIRS)
def test_a_ratio_has_the_paired_t_interval_and_p_value_of_scipy(pairs: list[tuple[float, float]]) -> None:
    a, b = (np.log(x) for x in zip(*pairs, strict=True))
    assume(np.ptp(a - b) > 1e-6)
    found = compare_ratio(side([x for x, _ in pairs]), side([y for _, y in pairs]))
    test = scipy_stats.ttest_rel(a, b)
    interval = test.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(
        (math.exp(interval.low), math.exp(interval.high)), rel=1e-8
    )
    assert found.p_value == pytest.approx(test.pvalue, rel=1e-6, abs=1e-12)
    assert found.method == "t on paired log-ratios"


@given(PAIRS)
def test_a_difference_has_the_paired_t_interval_and_p_value_of_scipy(
    pairs: list[tuple[float, float]],
) -> None:
    a, b = (np.array(x) for x in zip(*pairs, strict=True))
    assume(np.ptp(a - b) > 1e-6)
    found = compare_difference(side(list(a)), side(list(b)))
    test = scipy_stats.ttest_rel(a, b)
    interval = test.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-7, abs=1e-9)
    assert found.p_value == pytest.approx(test.pvalue, rel=1e-6, abs=1e-12)


@given(POSITIVE, POSITIVE)
def test_two_runs_are_compared_by_welch_and_say_that_they_were_not_interleaved(
    left: list[float], right: list[float]
) -> None:
    a, b = np.log(left), np.log(right)
    assume(np.ptp(a) > 1e-6 and np.ptp(b) > 1e-6)
    found = compare_unpaired(side(left), side(right))
    test = scipy_stats.ttest_ind(a, b, equal_var=False)
    interval = test.confidence_interval(0.95)
    assert (math.log(found.low or 0), math.log(found.high or 0)) == pytest.approx(
        (interval.low, interval.high), rel=1e-6, abs=1e-9
    )
    assert found.p_value == pytest.approx(test.pvalue, rel=1e-6, abs=1e-12)
    assert "not interleaved" in found.warnings[0]


@given(POSITIVE, POSITIVE)
def test_differences_between_two_runs_are_those_of_welch(left: list[float], right: list[float]) -> None:
    assume(np.ptp(left) > 1e-6 and np.ptp(right) > 1e-6)
    found = compare_unpaired_difference(side(left), side(right))
    test = scipy_stats.ttest_ind(left, right, equal_var=False)
    interval = test.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)
    assert found.p_value == pytest.approx(test.pvalue, rel=1e-6, abs=1e-12)
    assert found.value == pytest.approx(np.mean(left) - np.mean(right), abs=1e-9)
    assert "not interleaved" in found.warnings[0]


@given(PAIRS)
def test_swapping_the_sides_inverts_the_ratio(pairs: list[tuple[float, float]]) -> None:
    a, b = side([x for x, _ in pairs]), side([y for _, y in pairs])
    forth, back = compare_ratio(a, b), compare_ratio(b, a)
    assert forth.value * back.value == pytest.approx(1)
    if forth.low is not None and back.high is not None:
        assert forth.low * back.high == pytest.approx(1)


@given(st.integers(0, 300), st.integers(1, 300), st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_is_that_of_scipy_and_stays_within_zero_and_one(
    successes: int, total: int, confidence: float
) -> None:
    assume(successes <= total)
    expected = scipy_stats.binomtest(successes, total).proportion_ci(confidence, method="wilson")
    assert wilson(successes, total, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_a_proportion_counts_the_samples_of_all_launches() -> None:
    found = estimate_value(side([1.0, 0.5], [[1, 1, 1, 1], [1, 0, 1, 0]]), scale="proportion")
    expected = scipy_stats.binomtest(6, 8).proportion_ci(method="wilson")
    assert found.value == 0.75
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert wilson(0, 0) == (0.0, 1.0)


def test_only_shared_launches_are_paired() -> None:
    a = Launches(values={0: 2.0, 1: 2.2, 2: 9.0})
    b = Launches(values={0: 1.0, 1: 1.0, 3: 9.0})
    assert compare_ratio(a, b).num_launches == compare_difference(a, b).num_launches == 2
    nothing = compare_ratio(a, Launches(values={7: 1.0}))
    assert (nothing.low, nothing.high, nothing.num_launches) == (None, None, 0)
    assert math.isnan(nothing.value)


def test_one_launch_gives_a_value_and_no_interval() -> None:
    one = side([2.0])
    for found in (
        estimate_value(one),
        compare_ratio(one, side([1.0])),
        compare_difference(one, side([1.0])),
        compare_unpaired(one, side([1.0])),
    ):
        assert (found.low, found.high, found.method) == (None, None, "one launch")


def test_what_never_varies_is_a_constant_and_no_test() -> None:
    ratio = compare_ratio(side([8.0] * 3), side([4.0] * 3))
    assert (ratio.value, ratio.low, ratio.high, ratio.method) == (2.0, 2.0, 2.0, "constant")
    same = compare_ratio(side([8.0] * 3), side([8.0] * 3))
    assert (same.value, same.p_value) == (1.0, 1.0)
    bytes_ = compare_ratio(side([8.0], [[8.0, 8.0]]), side([4.0], [[4.0, 4.0]]))
    assert (bytes_.value, bytes_.low, bytes_.high) == (2.0, 2.0, 2.0)
    assert compare_difference(side([3.0, 3.0]), side([1.0, 1.0])).low == 2.0


def test_a_side_of_zero_has_no_ratio() -> None:
    assert compare_ratio(side([0.0, 0.0]), side([0.0, 0.0])).value == 1.0
    undefined = compare_ratio(side([1.0, 1.0]), side([0.0, 0.0]))
    assert (undefined.value, undefined.low) == (math.inf, None)
    nothing = compare_ratio(side([0.0, 0.0]), side([2.0, 3.0]))
    assert (nothing.value, nothing.low, nothing.high, nothing.p_value) == (0.0, 0.0, 0.0, 0.0)
    assert compare_unpaired(side([0.0, 0.0]), side([2.0, 3.0, 4.0])).num_launches == 2
    empty = compare_unpaired(side([]), side([0.0]))
    assert (empty.low, empty.p_value, empty.num_launches) == (None, None, 0)
    for left, right in (([0.0, 1.0], [1.0, 1.0]), ([1.0, 1.0], [0.0, 1.0])):
        for compare in (compare_ratio, compare_unpaired):
            found = compare(side(left), side(right))
            assert (found.low, found.high, found.p_value) == (None, None, None)
            assert "zero" in found.method


@given(st.lists(st.floats(), min_size=1, max_size=FEW + 6))
def test_a_median_is_numpys_whoever_takes_it(values: list[float]) -> None:
    with np.errstate(all="ignore"):
        expected = float(np.median(np.asarray(values)))
    assert median(values) == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize(
    ("statistic", "value"), [("median", 2.5), ("mean", 4.0), ("max", 10.0), ("sum", 16.0)]
)
def test_a_launch_is_reduced_by_its_metrics_statistic(statistic: str, value: float) -> None:
    assert launch_statistic([1.0, 2.0, 3.0, 10.0], statistic) == value


@pytest.mark.parametrize(
    ("samples", "statistic"),
    [([], "median"), ([1.0, math.nan], "mean"), ([math.inf], "max"), ([1.0], "mode")],
)
def test_what_cannot_be_reduced_is_refused(samples: list[float], statistic: str) -> None:
    with pytest.raises(ValueError, match=r"empty or not finite|unknown statistic"):
        launch_statistic(samples, statistic)


def simulate(
    rng: np.random.Generator,
    launches: int,
    effect: float,
    *,
    launch_sd: float = 0.01,
    sample_sd: float = 0.01,
) -> tuple[Launches, Launches]:
    sides = []
    for shift in (math.log(effect), 0.0):
        centres = shift + rng.normal(0, launch_sd, size=(launches, 1))
        samples = np.exp(centres + rng.normal(0, sample_sd, size=(launches, 15)))
        sides.append(side([float(np.median(s)) for s in samples], [list(s) for s in samples]))
    return sides[0], sides[1]


def coverage(launches: int, trials: int, effect: float) -> tuple[int, str]:
    rng = np.random.default_rng(20261121)
    hits, method = 0, ""
    for _ in range(trials):
        found = compare_ratio(*simulate(rng, launches, effect))
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= effect <= found.high
        method = found.method
    return hits, method


@pytest.mark.parametrize(
    ("launches", "trials"), [(5, 800), (12, 200), pytest.param(20, 120, marks=pytest.mark.full)]
)
def test_the_interval_of_a_ratio_covers_the_truth_as_often_as_it_says(
    monkeypatch: pytest.MonkeyPatch, launches: int, trials: int
) -> None:
    monkeypatch.setattr(
        "paceline.stats.estimates.BOOTSTRAP_DRAWS", 500
    )  # enough for a coverage, and eight times as fast
    hits, method = coverage(launches, trials, effect=1.03)
    assert ("bootstrap" in method) == (launches >= BOOTSTRAP_FROM)
    low, high = wilson(hits, trials, 0.999)
    assert low <= 0.95 <= high, f"{hits} of {trials}"


def test_the_bootstrap_is_repeatable_and_resamples_launches() -> None:
    a, b = simulate(np.random.default_rng(1), 12, 1.02, launch_sd=0.05, sample_sd=0.001)
    first, second, other = compare_ratio(a, b), compare_ratio(a, b), compare_ratio(a, b, seed=1)
    assert first == second != other
    assert first.low is not None
    assert first.high is not None
    spread = math.log(first.high / first.low) / (2 * 1.96)
    expected = float(np.std([math.log(a.values[k] / b.values[k]) for k in a.values], ddof=1)) / math.sqrt(12)
    assert spread == pytest.approx(expected, rel=0.2)


def skewed(statistic: str) -> tuple[Launches, Launches]:
    """Return two sides whose medians are equal, and whose means are 1.5 apart."""
    rng = np.random.default_rng(3)
    rows = {k: rng.exponential(1.0, size=400) for k in range(12)}
    tails = {k: np.where(v > np.quantile(v, 0.8), v * 1.9, v) for k, v in rows.items()}
    reduce = {"mean": np.mean, "median": np.median, "max": np.max}[statistic]
    top, bottom = (
        Launches(
            values={k: float(reduce(v)) for k, v in side.items()},
            samples={k: v.tolist() for k, v in side.items()},
            statistic=statistic,
        )
        for side in (tails, rows)
    )
    return top, bottom


@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_the_bootstrap_resamples_the_statistic_that_the_value_is(statistic: str) -> None:
    top, bottom = skewed(statistic)
    found = compare_ratio(top, bottom)
    assert "samples" in found.method
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high or found.value == pytest.approx(1)
    assert (found.low > 1.3) == (statistic == "mean")


def test_what_samples_cannot_tell_the_spread_of_is_resampled_by_launches() -> None:
    assert "samples" not in compare_ratio(*skewed("max")).method


@given(st.permutations(range(6)), st.floats(0.1, 10))
def test_order_and_unit_of_the_launches_do_not_matter(order: list[int], scale: float) -> None:
    a = {0: 1.0, 1: 1.2, 2: 0.9, 3: 1.1, 4: 1.3, 5: 1.0}
    b = {0: 1.1, 1: 1.0, 2: 1.0, 3: 0.9, 4: 1.2, 5: 1.1}
    base = compare_ratio(Launches(values=a), Launches(values=b))
    mixed = compare_ratio(
        Launches(values={k: a[k] * scale for k in order}), Launches(values={k: b[k] * scale for k in order})
    )
    assert (mixed.low, mixed.value, mixed.high) == pytest.approx((base.low, base.value, base.high))


def test_a_drift_cancels_in_pairs() -> None:
    drift = [1.0, 1.2, 1.5, 1.9, 2.4]
    noise = itertools.cycle([1.0, 1.001, 0.999])
    found = compare_ratio(side([1.05 * d * next(noise) for d in drift]), side(drift))
    assert found.low is not None
    assert 1.04 < found.low < 1.05 < (found.high or 0) < 1.06


def test_values_that_are_compared_by_difference_are_averaged_by_adding() -> None:
    accuracies = side([0.2, 0.4], [[0.2], [0.4]])
    found = estimate_value(accuracies, scale="linear")
    assert found.value == pytest.approx(0.3)
    assert found.low is not None and found.high is not None
    assert (found.low + found.high) / 2 == pytest.approx(0.3)
    assert estimate_value(accuracies).value == pytest.approx(0.08**0.5)


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_numbers_at_the_ends_of_what_a_float_holds_raise_nothing(scale: Literal["log", "linear"]) -> None:
    huge = Launches(values={0: 1.7e308, 1: 1.6e308, 2: 1.5e308})
    tiny = Launches(values={0: 5e-324, 1: 1e-323, 2: 2e-323})
    below = Launches(values={0: -1.7e308, 1: -1.6e308, 2: 1.5e308})
    assert compare_ratio(huge, tiny).value == math.inf
    assert compare_ratio(tiny, huge).value == 0
    assert not math.isfinite(compare_difference(huge, below).value)
    for side in (huge, tiny, below):
        assert estimate_value(side, scale=scale).num_launches == 3


def raced(values: dict[int, float], *missed: int) -> Launches:
    return Launches(values=values, missed=frozenset(missed))


def test_a_missed_launch_is_infinite_and_the_median_is_quoted_without_an_interval() -> None:
    """Geometric means of those who arrived would flatter a technique that arrives with one seed of three."""
    found = estimate_value(raced({0: 3.0, 2: 5.0}, 1))
    assert (found.value, found.low, found.high, found.num_launches, found.missed) == (5.0, None, None, 3, 1)
    lucky = estimate_value(raced({0: 3.0}, 1, 2))
    assert (lucky.value, lucky.num_launches, lucky.missed) == (math.inf, 3, 2)


def test_the_median_of_many_launches_has_an_interval_by_their_order() -> None:
    """Of ten, one is left out at either end: P(Bin(10, ½) ≤ 1) = 11/1024; of one more it would be 56/1024."""
    values = {n: float(n + 1) for n in range(9)}
    found = estimate_value(raced(values, 9))
    assert (found.value, found.low, found.high) == (5.5, 2.0, 9.0)
    two = estimate_value(raced(values, 9, 10, 11))
    assert (two.value, two.low, two.high) == (6.5, None, None), (
        "of twelve, three are left out, and the tenth is infinite"
    )
    base = raced(dict.fromkeys(range(10), 2.0))
    ratio = compare_ratio(raced(values, 9), base)
    assert (ratio.value, ratio.low, ratio.high) == (2.75, 1.0, 4.5)
    # of nine that are not 1, one is below and eight are above
    assert ratio.p_value == pytest.approx(2 * 10 / 512)
    faster = compare_ratio(base, raced(values, 9))
    assert (faster.low, faster.high) == (pytest.approx(2 / 9), 1.0)
    assert estimate_value(raced(dict(list(values.items())[:5]))).method == "t on log launch statistics"
    assert estimate_value(raced({0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}, 4)).low is None, (
        "of five all would have to be left out"
    )


def test_medians_with_misses_hold_the_true_median_as_often_as_they_say() -> None:
    rng, held = np.random.default_rng(5), 0
    for _ in range(2000):
        drawn = np.exp(rng.standard_normal(20))
        # what takes longer than 3 is missed: its median is 1 all the same
        values = {n: float(v) for n, v in enumerate(drawn) if v < 3.0}
        found = estimate_value(raced(values, *(n for n in range(20) if n not in values)))
        held += found.low is None or found.low <= 1.0 <= (found.high or 0.0)
    assert 0.945 <= held / 2000 <= 0.985


def test_ratios_with_misses_count_those_of_either_side() -> None:
    base = raced({0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0})
    found = compare_ratio(raced({0: 1.0, 1: 1.2, 3: 8.0}, 2), base)
    assert found.value == pytest.approx((0.6 + 4.0) / 2)  # of 0.5, 0.6, 4 and infinity
    assert (found.low, found.p_value, found.missed, found.num_launches) == (None, None, 1, 4)
    assert compare_ratio(raced({0: 1.0}, 1, 2, 3), base).value == math.inf
    assert compare_ratio(raced({0: 1.0, 1: 1.0, 2: 1.0}), raced({0: 2.0}, 1, 2)).value == 0.0
    neither = compare_ratio(raced({0: 3.0}, 1, 2), raced({0: 2.0}, 1, 2))
    assert (neither.value, neither.num_launches, neither.missed) == (1.5, 1, 2)


def test_two_runs_with_misses_are_compared_by_their_medians() -> None:
    found = compare_unpaired(raced({0: 3.0, 1: 4.0}, 2), raced({0: 2.0, 1: 2.5, 2: 9.0}))
    assert (found.value, found.low, found.missed) == (4.0 / 2.5, None, 1)
    assert compare_unpaired(raced({0: 3.0}, 1, 2), raced({0: 2.0})).value == math.inf
    assert math.isnan(compare_unpaired(raced({0: 3.0}, 1, 2), raced({0: 3.0}, 1, 2)).value)
