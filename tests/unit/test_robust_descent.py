"""Rules of a server that does not trust every gradient, by hand and by search, and what Byzantine nodes send."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
from paceline.baselines.training.flag_aggregator import FlagAggregator, subspace
from paceline.baselines.training.robust_descent import RobustDescent, aggregated, nearest
from test_objective_judge import play, point

from paceline.families.training.api.objective import Given, Gradient, Report, Run, Sizes
from paceline.families.training.ops.objective import problems, told
from paceline.families.training.ops.objective.attacks import byzantine, false
from paceline.families.training.ops.objective.spec import OPERATION

FIVE = np.array([[1.0, 0.0], [1.2, 0.1], [0.9, -0.1], [1.1, 0.2], [-50.0, 80.0]])
"""Four gradients that agree, and one that does not."""


def test_rules_are_what_their_names_say() -> None:
    assert aggregated("mean", FIVE, 1) == pytest.approx(FIVE.mean(axis=0))
    assert aggregated("median", FIVE, 1) == pytest.approx([1.0, 0.1])
    # without the largest and the smallest of each entry: 0.9, 1.0, 1.1 and 0.0, 0.1, 0.2
    assert aggregated("trimmed-mean", FIVE, 1) == pytest.approx([1.0, 0.1])
    assert aggregated("trimmed-mean", FIVE, 0) == pytest.approx(FIVE.mean(axis=0))


@pytest.mark.parametrize("lies", [1, 2])
def test_krum_is_the_one_with_the_nearest_neighbours(lies: int) -> None:
    gradients = np.random.default_rng(3).standard_normal((9, 4))
    scores = []
    for i in range(9):
        others = [j for j in range(9) if j != i]
        # by brute force: the least sum over all choices of n − f − 2 others
        scores.append(
            min(
                sum(float(((gradients[i] - gradients[j]) ** 2).sum()) for j in chosen)
                for chosen in itertools.combinations(others, 9 - lies - 2)
            )
        )
    assert nearest(gradients, lies) == pytest.approx(scores)
    assert np.array_equal(aggregated("krum", gradients, lies), gradients[int(np.argmin(scores))])
    best = sorted(range(9), key=lambda i: scores[i])[: 9 - lies - 2]
    assert aggregated("multi-krum", gradients, lies) == pytest.approx(gradients[best].mean(axis=0))


def sines(units: np.ndarray, basis: np.ndarray) -> float:
    return float(np.sqrt(np.maximum(1.0 - ((units @ basis) ** 2).sum(axis=1), 0.0)).sum())


def test_the_subspace_lies_where_the_sum_of_sines_is_least() -> None:
    rng = np.random.default_rng(5)
    angles = np.concatenate([0.3 + 0.05 * rng.standard_normal(7), [1.6, 2.2]])
    units = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    grid = np.linspace(0.0, np.pi, 20_001)
    best = min(grid, key=lambda a: sines(units, np.array([[np.cos(a)], [np.sin(a)]])))
    start = np.array([[1.0], [1.0]]) / np.sqrt(2)
    found = subspace(units, 1, 200, 0.0, start)
    assert abs(np.sin(np.arctan2(found[1, 0], found[0, 0]) - best)) < 2e-3
    # once over, without weights' feedback, it is a weighted mean of squares, and pulled towards the far ones
    squares = np.linalg.svd(units.T)[0][:, :1]
    assert sines(units, found) < sines(units, squares) - 1e-3
    falling = [sines(units, subspace(units, 1, count, 0.0, start)) for count in (1, 2, 4, 8, 16)]
    # Rounding stays: the weights' floor is 1e-7 of a sine's square.
    assert all(later <= sooner + 1e-5 for sooner, later in itertools.pairwise(falling))


def test_pairs_differences_are_columns_as_well() -> None:
    rng = np.random.default_rng(7)
    units = rng.standard_normal((4, 6))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    start = np.linalg.qr(rng.standard_normal((6, 2)))[0]

    def weight(x: np.ndarray) -> float:
        return float((abs(1 - sum(float(start[:, j] @ x) ** 2 for j in range(2))) + 1e-7) ** -0.25)

    columns = [weight(x) * x for x in units]
    columns += [
        weight(units[i] - units[j]) * 3.0 / 12 * (units[i] - units[j])
        for i, j in itertools.permutations(range(4), 2)
    ]
    expected = np.linalg.svd(np.array(columns).T)[0][:, :2]
    found = subspace(units, 2, 1, 3.0, start)
    assert found @ found.T == pytest.approx(expected @ expected.T, abs=1e-9)
    without = subspace(units, 2, 1, 0.0, start)
    assert np.abs(found @ found.T - without @ without.T).max() > 1e-2


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("attack", ["random", "reversed"])
def test_what_is_far_from_most_hardly_moves_it(attack: str) -> None:
    rng = np.random.default_rng(1)
    truth = rng.standard_normal(48)
    honest = truth + 0.3 * rng.standard_normal((9, 48))
    told_all = honest.copy()
    for place in (2, 6):
        told_all[place] = false(attack, honest[place], rng)
    for columns in (0, 1):
        technique = FlagAggregator(columns=columns)
        assert cosine(technique.aggregate(told_all, 2), truth) > 0.95
    if attack == "reversed":  # two that go ten times as far the other way outweigh seven
        assert cosine(aggregated("mean", told_all, 2), truth) < -0.9


def test_all_columns_keep_all_that_was_said() -> None:
    gradients = np.random.default_rng(2).standard_normal((5, 20))
    units = gradients / np.linalg.norm(gradients, axis=1, keepdims=True)
    found = FlagAggregator(columns=5).aggregate(gradients, 0)
    assert found == pytest.approx(units.sum(axis=0) / 5)


def params_of(**changes: Any) -> dict[str, Any]:
    return point(problem="classes", dim=48, nodes=9, samples=64, horizon=60.0, heterogeneity=0.0, **changes)


def test_false_gradients_are_drawn_apart_and_told_to_nobody() -> None:
    attacked = params_of(byzantine=2, attack="reversed")
    problem = problems.draw(attacked, 9, 1)
    liars = byzantine(attacked, 1 + 5)
    assert len(liars) == 2 and liars == byzantine(attacked, 1 + 5) and max(liars) < 9
    assert len({byzantine(attacked, seed) for seed in range(20)}) > 5
    assert {g.facts["byzantine"] for g in told.given_of(problem, attacked, 1)} == {2.0}
    assert "byzantine" not in told.given_of(problem, params_of(), 1)[0].facts
    at = np.ones(48)
    gradient = problem.gradient(0, at)
    rng = np.random.default_rng(0)
    assert np.array_equal(false("reversed", gradient, rng), -10 * gradient)
    noise = false("random", gradient, rng)
    assert abs(noise.mean()) < 100.0 and 150.0 < noise.std() < 250.0


class ShowsGradients:
    """Reports a minibatch's gradient of every client, twice."""

    def sizes(self, given: Given) -> Sizes:
        """Nothing is sent."""
        return Sizes(clients=(0,))

    def run(self, given: Given) -> Run:
        """Report what there is."""
        for _ in range(2 if given.me else 0):
            gradient = yield Gradient(np.ones(given.dim), 8)
            yield Report(gradient.copy())


@pytest.mark.parametrize("attack", ["random", "reversed"])
def test_liars_gradients_are_false_and_honest_ones_are_what_they_were(attack: str) -> None:
    changes = {"problem": "classes", "dim": 48, "nodes": 9, "heterogeneity": 0.0}
    seen = []
    for count in (0, 2):
        played, params, _ = play(ShowsGradients, 3, byzantine=count, attack=attack, **changes)
        seen.append({(node, i): model for i, (node, *_, model) in enumerate(played.reports)})
    liars = {place + 1 for place in byzantine(params, 3 + 5)}
    apart = {node for (node, i), model in seen[0].items() if not np.array_equal(model, seen[1][node, i])}
    assert apart == liars and len(seen[0]) == 18


def test_two_liars_ruin_the_mean_and_no_rule_that_knows_of_them() -> None:
    changes = {"problem": "classes", "dim": 48, "nodes": 9, "samples": 128, "heterogeneity": 0.0}
    changes |= {"horizon": 150.0, "condition": 1000.0, "byzantine": 2, "attack": "reversed"}
    made = {
        rule: partial(RobustDescent, rule=rule) for rule in ("mean", "median", "trimmed-mean", "multi-krum")
    }
    ended = {}
    for name, make in {**made, "flag": FlagAggregator}.items():
        played, params, _ = play(make, 3, **changes)
        problem = problems.draw(params, 9, 3)
        ended[name] = problem.accuracy(played.reports[-1][4])
    assert ended["mean"] < 0.5 and min(share for name, share in ended.items() if name != "mean") > 0.6, ended


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"byzantine": 5}, "5 of 9 nodes are Byzantine"),
        ({"byzantine": 1, "privacy_epsilon": 1.0, "problem": "logistic"}, "attacks are of plain gradients"),
    ],
)
def test_points_that_nobody_could_answer_are_refused(changes: dict[str, Any], words: str) -> None:
    asked = {**params_of(), **changes}
    assert any(words in problem for problem in OPERATION.check(asked))
