"""Verdicts: the whole table, what would settle an open one, ranks with ties, and the false discovery rate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from paceline.stats.estimates import Estimate, Launches, compare_ratio
from paceline.stats.verdicts import Verdict, benjamini_hochberg, judge, rank_intervals


def interval(low: float | None, high: float | None, value: float | None = None, **changes: Any) -> Estimate:
    middle = math.nan if low is None or high is None else (low + high) / 2
    facts = {"value": middle if value is None else value, "method": "t", "num_launches": 5, "spread": 0.01}
    return Estimate(low=low, high=high, **(facts | changes))


RATIOS = [
    # low, high, margin, better, verdict
    (0.90, 0.95, 0.02, "lower", "faster"),
    (0.90, 0.95, 0.02, "higher", "slower"),
    (1.05, 1.10, 0.02, "lower", "slower"),
    (1.05, 1.10, 0.02, "higher", "faster"),
    (0.99, 1.01, 0.02, "lower", "equivalent"),
    (1.005, 1.015, 0.02, "lower", "equivalent"),  # excludes no change, and nobody should care
    (0.985, 0.995, 0.02, "lower", "equivalent"),
    (0.985, 0.995, 0.02, "neither", "equivalent"),
    (1.005, 1.025, 0.02, "lower", "slower"),  # reaches beyond the margin
    (0.97, 0.99, 0.02, "lower", "faster"),
    (0.95, 1.05, 0.02, "lower", "inconclusive"),
    (0.995, 1.03, 0.02, "lower", "inconclusive"),
    (0.5, 0.6, 0.02, "neither", "inconclusive"),
    (1.0, 1.0, 0.0, "lower", "equivalent"),
    (1.0001, 1.0001, 0.0, "lower", "slower"),
    (1 / 1.02, 1.02, 0.02, "lower", "equivalent"),
    (None, None, 0.02, "lower", "inconclusive"),
]


@pytest.mark.parametrize(("low", "high", "margin", "better", "name"), RATIOS)
def test_the_verdict_on_a_ratio(low: float, high: float, margin: float, better: str, name: str) -> None:
    assert judge(interval(low, high), margin=margin, better=better).name == name


@pytest.mark.parametrize(
    ("low", "high", "margin", "better", "name"),
    [
        (-2.0, -1.0, 0.5, "lower", "faster"),
        (-2.0, -1.0, 0.5, "higher", "slower"),
        (1.0, 2.0, 0.5, "lower", "slower"),
        (0.1, 0.4, 0.5, "lower", "equivalent"),
        (-0.4, -0.1, 0.5, "lower", "equivalent"),
        (-1.0, 1.0, 0.5, "lower", "inconclusive"),
        (0.1, 0.6, 0.5, "lower", "slower"),
        (0.0, 0.0, 0.0, "lower", "equivalent"),
    ],
)
def test_the_verdict_on_a_difference(low: float, high: float, margin: float, better: str, name: str) -> None:
    assert judge(interval(low, high), margin=margin, better=better, kind="difference").name == name


@given(st.floats(0.2, 5), st.floats(1, 2), st.floats(0, 0.5), st.sampled_from(["lower", "higher"]))
def test_the_other_side_of_a_comparison_gets_the_mirrored_verdict(
    low: float, width: float, margin: float, better: str
) -> None:
    forth = judge(interval(low, low * width), margin=margin, better=better).name
    back = judge(interval(1 / (low * width), 1 / low), margin=margin, better=better).name
    assert back == {"faster": "slower", "slower": "faster"}.get(forth, forth)


def test_a_difference_that_many_comparisons_explain_is_not_claimed() -> None:
    estimate = interval(0.90, 0.95)
    assert judge(estimate, margin=0.02, better="lower", q_value=0.04).name == "faster"
    doubted = judge(estimate, margin=0.02, better="lower", q_value=0.06)
    assert doubted.name == "inconclusive"
    assert doubted.reason == "not significant among all comparisons of this report (q = 0.06)"
    assert judge(interval(0.99, 1.01), margin=0.02, better="lower", q_value=1.0).name == "equivalent"


def test_without_an_interval_the_method_says_why() -> None:
    assert judge(interval(None, None, method="one launch"), margin=0, better="lower") == Verdict(
        name="inconclusive", reason="no interval: one launch"
    )


def test_an_open_verdict_says_what_could_be_found_and_how_many_launches_settle_it() -> None:
    verdict = judge(interval(0.95, 1.05, spread=0.04), margin=0.02, better="lower")
    assert verdict.reason == "the interval includes no change"
    t = scipy_stats.t
    effect = (t.ppf(0.975, 4) + t.ppf(0.8, 4)) * 0.04 / math.sqrt(5)
    assert verdict.minimum_detectable == pytest.approx(math.exp(effect) - 1)
    assert verdict.launches_needed is not None

    def half(launches: int) -> float:
        return float(t.ppf(0.975, launches - 1) * 0.04 / math.sqrt(launches))

    assert half(verdict.launches_needed) <= math.log1p(0.02) < half(verdict.launches_needed - 3)
    assert judge(interval(0.95, 1.05, spread=None), margin=0.02, better="lower").launches_needed is None


def test_the_minimum_detectable_effect_is_found_in_about_four_of_five_runs() -> None:
    rng = np.random.default_rng(7)
    launches, spread = 8, 0.02
    estimate = interval(0.98, 1.02, num_launches=launches, spread=spread)
    effect = judge(estimate, margin=0.001, better="lower").minimum_detectable
    assert effect is not None
    found = 0
    for _ in range(400):
        logs = math.log1p(effect) + rng.normal(0, spread, launches)
        ratio = compare_ratio(
            Launches(values=dict(enumerate(np.exp(logs).tolist()))),
            Launches(values=dict.fromkeys(range(launches), 1.0)),
        )
        found += judge(ratio, margin=0.001, better="lower").name == "slower"
    assert 0.74 < found / 400 < 0.88


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_adjusted_p_values_are_those_of_scipy(p_values: list[float]) -> None:
    assert benjamini_hochberg(p_values) == pytest.approx(
        scipy_stats.false_discovery_control(p_values).tolist()
    )


def test_nothing_adjusts_to_nothing() -> None:
    assert benjamini_hochberg([]) == []


def test_techniques_that_cannot_be_told_apart_share_ranks() -> None:
    names = ["a", "b", "c"]
    better = {("a", "b"): True, ("a", "c"): True, ("b", "a"): False}
    assert rank_intervals(names, better) == {"a": (1, 1), "b": (2, 3), "c": (2, 3)}
    assert rank_intervals(names, {}) == dict.fromkeys(names, (1, 3))
    chain = {("a", "c"): True}
    assert rank_intervals(names, chain) == {"a": (1, 2), "b": (1, 3), "c": (2, 3)}


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 5)), min_size=1, max_size=8))
def test_the_true_rank_lies_in_the_rank_interval(intervals: list[tuple[float, float]]) -> None:
    names = [str(i) for i in range(len(intervals))]
    ends = {n: (low, low + width) for n, (low, width) in zip(names, intervals, strict=True)}
    better = {(a, b): ends[a][1] < ends[b][0] for a in names for b in names}
    order = sorted(names, key=lambda n: ends[n][0])
    for name, (best, worst) in rank_intervals(names, better).items():
        assert best <= order.index(name) + 1 <= worst
