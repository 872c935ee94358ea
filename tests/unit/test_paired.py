"""Paired answers: exact tests against brute force, intervals against simulation, and what is wrong is told apart."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from paceline.stats.estimates import wilson
from paceline.stats.paired import clustered, compare_paired, holm, mcnemar, sign_flip


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemar_is_the_binomial_tail_on_what_differs(won: int, lost: int) -> None:
    n = won + lost
    tail = sum(math.comb(n, k) for k in range(min(won, lost) + 1)) / 2**n
    assert mcnemar(won, lost) == pytest.approx(min(1.0, 2 * tail) if won != lost else 1.0)


@settings(max_examples=50)
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=1, max_size=9))
def test_flipping_signs_tries_all_of_them(differences: list[float]) -> None:
    total = abs(sum(differences))
    flips = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    assert sign_flip(differences) == pytest.approx(sum(f >= total - 1e-9 for f in flips) / len(flips))


def test_the_sampled_test_agrees_with_the_exact_one_and_is_never_zero() -> None:
    ones = [1.0] * 9 + [-1.0] * 4
    assert sign_flip(ones) == pytest.approx(mcnemar(9, 4), abs=0.02)
    assert 0 < sign_flip([1.0] * 60) <= 2 / 10_000
    assert sign_flip(ones) == sign_flip(ones)


@pytest.mark.parametrize("count", [30, 100, 500])
def test_the_interval_covers_the_truth_as_often_as_it_says(count: int) -> None:
    rng = np.random.default_rng(count)
    truth = float(np.mean(np.minimum(rng.beta(2, 1, 400_000) + 0.1, 1))) - 2 / 3
    trials, hits = 2000, 0
    for _ in range(trials):
        skill = rng.beta(2, 1, size=count)  # questions differ, and both techniques find the same ones hard
        first = rng.random(count) < np.minimum(skill + 0.1, 1)
        second = rng.random(count) < skill
        found = compare_paired(first, second)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= truth <= found.high
    low, high = wilson(hits, trials, 0.999)
    assert low <= 0.97
    assert high >= 0.93
    assert 0.93 <= hits / trials <= 0.97


def test_pairing_sees_what_independent_samples_hide() -> None:
    rng = np.random.default_rng(5)
    hard = rng.random(300) < 0.5
    baseline = np.where(hard, 0.0, 1.0)
    technique = baseline.copy()
    technique[np.flatnonzero(hard)[:15]] = 1.0  # wins 15 of 300 and loses none
    found = compare_paired(technique, baseline)
    assert (found.won, found.lost) == (15, 0)
    assert found.low is not None
    assert found.low > 0
    assert mcnemar(found.won, found.lost) < 0.001
    assert scipy_stats.ttest_ind(technique, baseline).pvalue > 0.1


def test_few_questions_have_no_interval_and_unequal_numbers_are_refused() -> None:
    assert compare_paired([1.0], [0.0]).low is None
    assert math.isnan(compare_paired([], []).difference)
    with pytest.raises(ValueError, match="1 answer beside 3"):
        compare_paired([1.0], [1.0, 0.0, 1.0])


def test_holm_is_stepwise_and_never_lowers_a_p_value() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


@pytest.mark.parametrize("count", [30, 100, pytest.param(500, marks=pytest.mark.full)])
def test_a_clustered_interval_covers_and_one_over_all_samples_does_not(count: int) -> None:
    rng = np.random.default_rng(count + 1)
    trials, hits, naive_hits, per_question = 2000, 0, 0, 8
    for _ in range(trials):
        skill = rng.beta(2, 1, size=count)
        samples = rng.random((count, per_question)) < skill[:, None]
        found = clustered(samples.tolist())
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 2 / 3 <= found.high
        flat = samples.astype(float).ravel()
        half = 1.96 * flat.std(ddof=1) / np.sqrt(flat.size)
        naive_hits += abs(flat.mean() - 2 / 3) <= half
    assert 0.93 <= hits / trials <= 0.97
    assert naive_hits / trials < 0.85


def test_the_variance_is_split_between_and_within_questions() -> None:
    rng = np.random.default_rng(11)
    skill = rng.beta(2, 1, size=4000)
    found = clustered((rng.random((4000, 8)) < skill[:, None]).tolist())
    assert found.between == pytest.approx(1 / 18, rel=0.08)  # of Beta(2, 1)
    assert found.within == pytest.approx(1 / 6, rel=0.05)  # the mean of p(1 - p)
    assert found.share_between == pytest.approx((1 / 18) / (1 / 18 + 1 / 6), rel=0.08)
    same = clustered((rng.random((500, 8)) < 0.5).tolist())
    assert same.share_between is not None
    assert same.share_between < 0.03
    assert clustered([[1.0, 1.0], [1.0, 1.0]]).share_between is None
    with pytest.raises(ValueError, match="equally many"):
        clustered([[1.0, 0.0], [1.0]])


@pytest.mark.parametrize("count", [30, 300])
def test_the_least_effect_is_found_as_often_as_it_says(count: int) -> None:
    rng = np.random.default_rng(count)
    spread = 0.6
    least = np.mean([compare_paired(rng.normal(0, spread, count), [0.0] * count).least for _ in range(200)])
    found = 0
    for _ in range(2000):
        low = compare_paired(rng.normal(least, spread, count), [0.0] * count).low
        assert low is not None
        found += low > 0
    assert found / 2000 == pytest.approx(0.8, abs=0.04)
    assert compare_paired([1.0], [0.0]).least is None


def test_differences_that_are_all_equal_have_no_interval() -> None:
    for technique, baseline in (
        ([1.0, 0.0, 1.0], [1.0, 0.0, 1.0]),
        ([1.0] * 3, [0.0] * 3),
        ([0.1] * 3, [0.0] * 3),
    ):
        found = compare_paired(technique, baseline)
        assert found.difference == pytest.approx(technique[0] - baseline[0])
        assert (found.low, found.high, found.least) == (None, None, None)
