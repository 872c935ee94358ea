"""Influence among gossiping peers: runs again without a step, derivatives along walks, and what may not be asked."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from paceline.baselines.training.dice import Dice
from paceline.baselines.training.own_influence import OwnInfluence
from paceline.baselines.training.random_influence import RandomInfluence

from paceline.families.training.api.influence import (
    Displacement,
    Estimate,
    Estimator,
    Given,
    HessianProduct,
    TestGradient,
)
from paceline.families.training.core.apart import RefusedError, where_apart
from paceline.families.training.ops.influence.child import Replies
from paceline.families.training.ops.influence.gossip import DECAY, Gossip, logistic_gradient, true_influence
from paceline.families.training.ops.influence.parameters import PARAMETERS
from paceline.families.training.ops.influence.run import correlation, error_of, figures
from paceline.families.training.ops.influence.spec import OPERATION

DEFAULTS = {p.name: p.default for p in PARAMETERS}
SMALL = {
    **DEFAULTS,
    "peers": 5,
    "features": 4,
    "peer_samples": 12,
    "peer_minibatch": 5,
    "gossip_steps": 9,
    "asked_steps": 3,
}


def estimated(
    estimator: Estimator, params: Any = SMALL, seed: int = 1, *, uneven: bool = False
) -> tuple[np.ndarray, Replies]:
    run = Gossip(params, seed, uneven=uneven)
    replies = Replies(run)
    replies.serve(estimator.run(run.given(7)))
    return np.stack([replies.estimates[step] for step in run.asked]), replies


def influence_by_hand(run: Gossip, step: int, peer: int) -> float:
    """Return the influence of a displacement from two runs that are written out, peer by peer."""

    def loss(weights: np.ndarray) -> float:
        margins = run.test_labels * (run.test_inputs @ weights)
        return float(np.mean(np.log1p(np.exp(-margins))) + 0.5 * DECAY * weights @ weights)

    def stepped(
        weights: list[np.ndarray], at: int, left_out: int | None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        moved = []
        for k, w in enumerate(weights):
            rows = run.batches[at][k]
            x, y = run.inputs[k][rows], run.labels[k][rows]
            slope = np.mean([-y[i] * x[i] / (1 + np.exp(y[i] * (x[i] @ w))) for i in range(len(y))], axis=0)
            moved.append(w if k == left_out else w - run.rate * (slope + DECAY * w))
        mixed = [sum(run.mixing[k, m] * moved[m] for m in range(len(moved))) for k in range(len(moved))]
        return moved, mixed

    with_it = without = [w.copy() for w in run.weights[step]]
    total = 0.0
    for hop in range(run.hops + 1):
        if hop:
            total += sum(
                run.shares[k] * (loss(a) - loss(b))
                for k, (a, b) in enumerate(zip(with_it, without, strict=True))
            )
        if hop == run.hops and hop:
            break
        moved, with_it = stepped(with_it, step + hop, None)
        _, without = stepped(without, step + hop, peer if hop == 0 else None)
        if hop == 0:
            total += run.shares[peer] * (loss(moved[peer]) - loss(run.weights[step][peer]))
            if run.hops == 0:
                break
    return total


@pytest.mark.parametrize("hops", [0, 1, 3])
@pytest.mark.parametrize("graph", ["ring", "line"])
def test_true_influence_is_that_of_runs_without_a_step(hops: int, graph: str) -> None:
    run = Gossip({**SMALL, "influence_hops": hops, "peer_graph": graph}, 2)
    found = true_influence(run)
    by_hand = [[influence_by_hand(run, step, peer) for peer in range(5)] for step in run.asked]
    assert np.allclose(found, by_hand, atol=1e-12)
    assert (found < 0).any() and (found > 0).any()


def test_gradients_and_products_are_derivatives() -> None:
    run = Gossip(SMALL, 3)
    weights, vector = run.weights[4, 2], np.arange(4.0)
    eps = 1e-6
    slopes = [
        (run.test_loss(weights + eps * e) - run.test_loss(weights - eps * e)) / (2 * eps) for e in np.eye(4)
    ]
    assert np.allclose(run.test_gradient(2, 4), slopes, atol=1e-8)
    rows = run.batches[4][2]
    ends = [
        logistic_gradient(weights + s * eps * vector, run.inputs[2][rows], run.labels[2][rows])
        for s in (1, -1)
    ]
    assert np.allclose(run.hessian_product(2, 4, vector), (ends[0] - ends[1]) / (2 * eps), atol=1e-7)


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
def test_estimates_are_sums_over_walks(hops: int) -> None:
    run = Gossip({**SMALL, "influence_hops": hops}, 2)
    found, _ = estimated(Dice(), {**SMALL, "influence_hops": hops}, 2)
    hessians = {
        (peer, step): np.stack([run.hessian_product(peer, step, e) for e in np.eye(4)], axis=1)
        for peer in range(5)
        for step in range(len(run.displacements))
    }
    for row, step in enumerate(run.asked):
        for peer in range(5):
            total = run.shares[peer] * run.test_gradient(peer, step) @ run.displacements[step, peer]
            for length in range(1, hops + 1):
                for walk in itertools.product(range(5), repeat=length):
                    vector, before = run.displacements[step, peer], peer
                    for hop, after in enumerate(walk, start=1):
                        if hop > 1:
                            at = step + hop - 1
                            vector = vector - run.rate * hessians[before, at] @ vector
                        vector = run.mixing[after, before] * vector
                        before = after
                    total += run.shares[before] * run.test_gradient(before, step + length) @ vector
            assert found[row, peer] == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("hops", [0, 1, 3])
def test_at_small_rates_estimates_are_the_influence(hops: int) -> None:
    params = {**SMALL, "influence_hops": hops, "step_rate": 1e-4}
    truth = true_influence(Gossip(params, 1, uneven=True))
    assert error_of(estimated(Dice(), params, uneven=True)[0], truth) < 1e-3
    if hops:
        assert error_of(estimated(OwnInfluence(), params, uneven=True)[0], truth) > 0.1
    else:
        assert np.allclose(estimated(OwnInfluence(), params)[0], estimated(Dice(), params)[0])


def test_an_estimator_wants_the_same_again_on_what_it_was_told() -> None:
    for estimator in (Dice, OwnInfluence, RandomInfluence):
        _, replies = estimated(estimator())
        given = Gossip(SMALL, 1).given(7)
        assert where_apart(estimator().run(given), replies.answers, replies.wanted) is None
    assert (
        where_apart(RandomInfluence().run(Gossip(SMALL, 1).given(8)), replies.answers, replies.wanted)
        is not None
    )


def test_who_asks_is_counted() -> None:
    steps, peers = 3, 5
    assert estimated(OwnInfluence())[1].queries == steps * peers
    assert estimated(RandomInfluence())[1].queries == 0
    # Gradients of all peers at three instants, and a product of each of three peers that a step reached on a ring.
    assert estimated(Dice())[1].queries == steps * (3 * peers + 3 * peers)


def test_figures_by_hand() -> None:
    truth = np.array([[1.0, -1.0, 0.0], [2.0, -2.0, -1.0]])
    perfect = figures(truth, truth, (0,))
    assert perfect == pytest.approx(
        {"influence_correlation": 1, "peer_correlation": 1, "influence_error": 0, "flipped_found": 1}
    )
    assert figures(2 * truth, truth, ())["influence_error"] == pytest.approx(1)
    assert figures(-truth, truth, (0,))["flipped_found"] == 0
    assert figures(-truth, truth, (0,))["influence_correlation"] == pytest.approx(-1)
    assert correlation(np.zeros(3), np.arange(3.0)) == 0
    assert figures(truth, truth, (0, 2))["flipped_found"] == pytest.approx(1.0)
    assert figures(truth, truth, (1, 2))["flipped_found"] == pytest.approx(0.5)


IMPOSSIBLE: dict[str, tuple[Any, str]] = {
    "no such peer": (TestGradient(5, 0), "there is no peer 5"),
    "no such step": (Displacement(0, 99), "in step 99"),
    "a long vector": (HessianProduct(0, 0, np.ones(7)), "a vector has 4 numbers"),
    "a step that nobody asked for": (Estimate(1, np.zeros(5)), "step 1 is not asked for"),
    "too few numbers": (Estimate(0, np.zeros(3)), "5 peers is as many finite numbers"),
    "no number": (Estimate(0, np.full(5, np.nan)), "finite"),
    "a word": ("everything", "not str"),
}


@pytest.mark.parametrize("name", sorted(IMPOSSIBLE))
def test_an_estimator_may_not_want_what_cannot_be(name: str) -> None:
    want, reason = IMPOSSIBLE[name]

    class Impossible:
        def run(self, given: Given) -> Any:
            yield want

    with pytest.raises(RefusedError, match=reason):
        estimated(Impossible())


def test_flipped_peers_and_points() -> None:
    run = Gossip({**DEFAULTS, "flipped_peers": 2}, 4)
    honest = Gossip({**DEFAULTS, "flipped_peers": 0}, 4)
    differ = [p for p in range(8) if not np.array_equal(run.labels[p], honest.labels[p])]
    assert differ == list(run.flipped) and len(differ) == 2
    assert OPERATION.check(DEFAULTS) == []
    assert "nobody is right" in OPERATION.check({**DEFAULTS, "flipped_peers": 8})[0]
    assert "a run has 60" in OPERATION.check({**DEFAULTS, "asked_steps": 61})[0]
    assert "all different" in OPERATION.check({**DEFAULTS, "peer_minibatch": 201})[0]
