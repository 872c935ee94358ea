"""Shares of a budget, and the leaves that an integer programme keeps: equal to trying all sets of small trees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paceline.baselines.reasoning.ets import SMALLEST, chosen
from paceline.baselines.reasoning.rebase import shares

Tree = tuple[list[int], list[list[int]], list[int]]


def value(
    kept: Sequence[int],
    weights: Sequence[float],
    paths: Sequence[Sequence[int]],
    clusters: Sequence[int],
    *,
    b: float,
    d: float,
) -> float:
    """Return what the paper maximises, less the harness-free tie-break for each leaf."""
    nodes = len({n for i in kept for n in paths[i]}) / len({n for path in paths for n in path})
    covered = len({clusters[i] for i in kept}) / len(set(clusters))
    share = sum(weights[i] for i in kept) / max(sum(weights), 1e-300)
    return share - b * nodes + d * covered - SMALLEST * len(kept)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Return weights, paths and clusters of the leaves of a small tree."""
    leaves = draw(st.integers(1, 7))
    parents = [draw(st.integers(-1, node - 1)) for node in range(5)]
    paths = []
    for leaf in range(leaves):
        path, node = [100 + leaf], draw(st.integers(-1, 4))
        while node >= 0:
            path.append(node)
            node = parents[node]
        paths.append(path)
    weights = draw(st.lists(st.integers(0, 9), min_size=leaves, max_size=leaves))
    clusters = draw(st.lists(st.integers(0, 3), min_size=leaves, max_size=leaves))
    return weights, paths, clusters


@given(tree=trees(), b=st.sampled_from([0.0, 0.5, 1.0, 3.0]), d=st.sampled_from([0.0, 0.3, 1.0]))
def test_the_programme_finds_what_trying_all_sets_finds(tree: Tree, b: float, d: float) -> None:
    weights, paths, clusters = tree
    found = chosen(weights, paths, clusters, cache=b, coverage=d)
    leaves = range(len(paths))
    best = max(
        value(kept, weights, paths, clusters, b=b, d=d)
        for count in range(1, len(paths) + 1)
        for kept in combinations(leaves, count)
    )
    assert found
    assert value(found, weights, paths, clusters, b=b, d=d) == pytest.approx(best, abs=1e-5)


def test_shared_paths_stay_and_a_cluster_of_its_own_is_worth_its_cache() -> None:
    paths = [[0, 1, 10], [0, 1, 11], [0, 2, 12]]
    assert chosen([5, 5, 1], paths, ["a", "a", "b"], cache=1.0, coverage=0.0) == [0, 1]
    assert chosen([5, 5, 1], paths, ["a", "a", "b"], cache=0.2, coverage=1.0) == [0, 1, 2]
    # known wrong: without the cache's cost nothing would ever go
    assert chosen([5, 5, 1], paths, ["a", "a", "b"], cache=0.0, coverage=0.0) == [0, 1, 2]


@given(
    rewards=st.lists(st.floats(0, 1), min_size=1, max_size=12),
    budget=st.integers(1, 40),
    temperature=st.sampled_from([0.05, 0.2, 1.0]),
)
def test_shares_use_up_the_budget_in_the_order_of_rewards(
    rewards: list[float], budget: int, temperature: float
) -> None:
    found = shares(rewards, budget, temperature)
    assert sum(found) == budget
    weights = [math.exp(r / temperature) for r in rewards]
    for share, weight in zip(found, weights, strict=True):
        assert abs(share - budget * weight / sum(weights)) < 1
    order = sorted(range(len(rewards)), key=lambda i: rewards[i])
    assert all(found[i] <= found[j] + 1 for i, j in pairwise(order))
