"""What a vote over some of the samples gives, against the count of all subsets one by one."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from paceline.families.reasoning.api import votes
from paceline.families.reasoning.core.estimates import (
    at_equal_tokens,
    consensus,
    hull,
    pass_at_k,
)

ANSWERS = st.lists(st.sampled_from(["1", "2", "3", None]), min_size=1, max_size=7)


def wins(subset: tuple[str | None, ...], truth: str) -> float:
    """Give the truth its share of the vote's win, by the definition."""
    counts = Counter(a for a in subset if a is not None)
    best = max(counts.values(), default=0)
    tied = [a for a, n in counts.items() if n == best]
    return (truth in tied) / len(tied) if tied else 0.0


@settings(max_examples=150, deadline=None)
@given(ANSWERS)
def test_the_expected_vote_is_the_mean_over_all_subsets(answers: list[str | None]) -> None:
    for k, found in enumerate(consensus(answers, "1"), start=1):
        subsets = list(combinations(answers, k))
        assert found == pytest.approx(sum(wins(s, "1") for s in subsets) / len(subsets), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["1", "2", "3", None]), min_size=1, max_size=6))
def test_a_vote_by_the_first_among_equals_over_all_orders_is_the_expected_vote(
    answers: list[str | None],
) -> None:
    for k in range(1, len(answers) + 1):
        orders = [votes.majority(order[:k]) == "1" for order in permutations(answers)]
        assert consensus(answers, "1")[k - 1] == pytest.approx(sum(orders) / len(orders), abs=1e-12)


def test_voting_with_the_first_k_is_another_thing() -> None:
    answers = ["1", "1", "2", "2", "2"]
    first = [float(votes.majority(answers[:k]) == "1") for k in range(1, 6)]
    assert first != pytest.approx(consensus(answers, "1"))


@given(st.integers(1, 12), st.integers(0, 12), st.integers(1, 12))
def test_pass_at_k_counts_subsets_with_a_right_sample(n: int, right: int, k: int) -> None:
    if k > n or right > n:
        with pytest.raises(ValueError):
            pass_at_k(n, right, k)
        return
    marks = [True] * right + [False] * (n - right)
    subsets = list(combinations(marks, k))
    assert pass_at_k(n, right, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


def test_as_many_right_samples_as_are_drawn_is_no_certainty() -> None:
    assert pass_at_k(10, 2, 2) < 0.5


def test_many_samples_stay_exact_enough() -> None:
    rng = random.Random(3)
    answers = [str(rng.randrange(4)) for _ in range(64)]
    found = consensus(answers, "0")
    assert all(-1e-9 <= p <= 1 + 1e-9 for p in found)
    assert found[0] == pytest.approx(answers.count("0") / 64)
    assert found[-1] in (pytest.approx(0.0), pytest.approx(1.0), pytest.approx(0.5), pytest.approx(1 / 3))


@pytest.mark.parametrize(("first", "second"), [(0, 0), (1, 0), (3, 1), (9, 8), (2, 5)])
def test_a_leader_is_as_safe_as_the_beta_distribution_says(first: int, second: int) -> None:
    assert votes.leader_is_safe(first, second) == pytest.approx(1 - beta.cdf(0.5, first + 1, second + 1))


def test_votes_ignore_what_cannot_be_read_and_entropy_does_not() -> None:
    assert votes.majority([None, "2", None]) == "2"
    assert votes.majority([None, None]) is None
    assert votes.majority([]) is None
    assert votes.majority(["5", "2", "2", "5"]) == "5"
    assert votes.normalised_entropy(["5", "5", "5"]) == 0
    assert votes.normalised_entropy(["1", "2", "3"]) == pytest.approx(1)
    assert votes.normalised_entropy(["1", None, None]) == pytest.approx(1)
    assert votes.normalised_entropy(["1"]) == 1
    assert votes.top_two(["1", "1", "2", None]) == (2, 1)
    assert votes.top_two([None]) == (0, 0)


def test_a_curve_is_read_where_it_is_known() -> None:
    curve = [(100.0, 0.5), (200.0, 0.7), (400.0, 0.7), (500.0, 0.8)]
    assert at_equal_tokens(curve, 150) == pytest.approx(0.6)
    assert at_equal_tokens(curve, 99) is None
    assert at_equal_tokens(curve, 501) is None
    assert at_equal_tokens(curve, 500 * (1 + 1e-12)) == pytest.approx(0.8)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_the_hull_lies_above_the_curve_and_only_turns_down(accuracies: list[float]) -> None:
    curve = [(float(k + 1), a) for k, a in enumerate(accuracies)]
    corners = hull(curve)
    assert corners[0] == curve[0]
    assert corners[-1] == curve[-1]
    assert all((at_equal_tokens(corners, x) or 0) >= a - 1e-9 for x, a in curve)
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(corners)]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(slopes))


def test_mixing_votes_of_two_sizes_gains_nothing_over_the_hull() -> None:
    answers = ["1", "1", "2", "3"]
    curve = [(float(k + 1), a) for k, a in enumerate(consensus(answers, "1"))]
    assert curve[1][1] == pytest.approx(curve[0][1]), "a vote over two is no better than one trace"
    mixed = (curve[0][1] + curve[2][1]) / 2
    assert mixed > curve[1][1] + 0.01
    assert (at_equal_tokens(hull(curve), 2.0) or 0) >= mixed - 1e-12
