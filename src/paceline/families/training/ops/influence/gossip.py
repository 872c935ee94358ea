"""Peers that learn a logistic model by gossip, drawn from a seed. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from paceline.families.training.api.influence import Array, Given
from paceline.families.training.core.planning.graphs import mixing

SHARPNESS = 3.0
"""Length of the model that labels are drawn from."""
SHIFT = 0.5
"""Deviation of the means of peers' inputs: peers have different data."""
DECAY = 1e-3
"""Of the weights' squares in every loss: what makes an optimum of separable samples."""
HELD_OUT = 2000


def sigmoid(z: Array) -> Array:
    """Return 1/(1 + exp(−z))."""
    found: Array = 0.5 * (1.0 + np.tanh(0.5 * z))
    return found


class Gossip:
    """A run: all peers' weights before every step, and their displacements.

    Args:
        params: Of the point.
        seed: Of samples, minibatches and who is flipped.
        uneven: Whether peers begin at weights of their own and have unequal shares. Otherwise all begin at zero with
            equal ones, where at small rates who mixes with whom would not matter.

    Attributes:
        weights: [steps + 1, peers, features].
        displacements: [steps, peers, features].
        flipped: Peers with flipped labels.
    """

    def __init__(self, params: Mapping[str, Any], seed: int, *, uneven: bool = False) -> None:
        rng = np.random.default_rng([seed, 1])
        peers, dim = int(params["peers"]), int(params["features"])
        samples, batch = int(params["peer_samples"]), int(params["peer_minibatch"])
        self.rate, self.hops = float(params["step_rate"]), int(params["influence_hops"])
        self.asked = tuple(
            int(s) for s in np.linspace(0, int(params["gossip_steps"]) - 1, int(params["asked_steps"]))
        )
        # Influence of the last step is followed for as many steps as there are hops.
        steps = int(params["gossip_steps"]) + self.hops
        truth = rng.standard_normal(dim)
        truth *= SHARPNESS / np.linalg.norm(truth)
        self.inputs = rng.standard_normal((peers, samples, dim)) + SHIFT * rng.standard_normal(
            (peers, 1, dim)
        )
        self.labels = np.where(rng.random((peers, samples)) < sigmoid(self.inputs @ truth), 1.0, -1.0)
        self.flipped = tuple(sorted(int(p) for p in rng.permutation(peers)[: int(params["flipped_peers"])]))
        self.labels[list(self.flipped)] *= -1.0
        self.test_inputs = rng.standard_normal((HELD_OUT, dim))
        self.test_labels = np.where(rng.random(HELD_OUT) < sigmoid(self.test_inputs @ truth), 1.0, -1.0)
        self.mixing = mixing(str(params["peer_graph"]), peers)
        self.shares = np.full(peers, 1.0 / peers)
        self.batches = [[rng.permutation(samples)[:batch] for _ in range(peers)] for _ in range(steps)]
        self.weights = np.zeros((steps + 1, peers, dim))
        self.displacements = np.zeros((steps, peers, dim))
        if uneven:
            self.shares = rng.uniform(0.5, 1.5, peers) / peers
            self.shares /= self.shares.sum()
            self.weights[0] = rng.standard_normal((peers, dim))
        for step in range(steps):
            self.displacements[step] = self.moves(self.weights[step], step)
            self.weights[step + 1] = self.mixing @ (self.weights[step] + self.displacements[step])

    def given(self, seed: int) -> Given:
        """Return what an estimator is told."""
        return Given(
            peers=len(self.shares),
            hops=self.hops,
            steps=self.asked,
            rate=self.rate,
            mixing=self.mixing.copy(),
            shares=self.shares.copy(),
            seed=seed,
        )

    def moves(self, weights: Array, step: int) -> Array:
        """Return what peers' steps add to some weights, [peers, features]."""
        return np.stack([-self.rate * self._gradient(w, p, step) for p, w in enumerate(weights)])

    def _gradient(self, weights: Array, peer: int, step: int) -> Array:
        rows = self.batches[step][peer]
        return logistic_gradient(weights, self.inputs[peer][rows], self.labels[peer][rows])

    def test_gradient(self, peer: int, step: int) -> Array:
        """Return the gradient of the held-out loss at a peer's weights before a step."""
        return logistic_gradient(self.weights[step, peer], self.test_inputs, self.test_labels)

    def hessian_product(self, peer: int, step: int, vector: Array) -> Array:
        """Return the Hessian of a peer's minibatch at its weights before a step, times a vector."""
        x_BD = self.inputs[peer][self.batches[step][peer]]
        chance = sigmoid(x_BD @ self.weights[step, peer])
        found: Array = x_BD.T @ (chance * (1 - chance) * (x_BD @ vector)) / len(x_BD) + DECAY * vector
        return found

    def test_loss(self, weights: Array) -> Array:
        """Return the held-out loss of several models, [..., features] → [...]."""
        margins = self.test_labels * (weights @ self.test_inputs.T)
        found: Array = np.logaddexp(0.0, -margins).mean(axis=-1) + 0.5 * DECAY * (weights**2).sum(axis=-1)
        return found


def logistic_gradient(weights: Array, inputs_BD: Array, labels_B: Array) -> Array:
    """Return the gradient of the mean logistic loss with decay, [features]."""
    slope = -labels_B * sigmoid(-labels_B * (inputs_BD @ weights))
    found: Array = inputs_BD.T @ slope / len(labels_B) + DECAY * weights
    return found


def true_influence(gossip: Gossip) -> Array:
    """Return the influence of every peer's displacement, [asked steps, peers], by running again without it."""
    found = np.zeros((len(gossip.asked), len(gossip.shares)))
    for row, step in enumerate(gossip.asked):
        moved = gossip.weights[step] + gossip.displacements[step]
        before, after = gossip.test_loss(gossip.weights[step]), gossip.test_loss(moved)
        for peer in range(len(gossip.shares)):
            found[row, peer] = gossip.shares[peer] * (after[peer] - before[peer])
            without = moved.copy()
            without[peer] = gossip.weights[step, peer]
            for hop in range(1, gossip.hops + 1):
                if hop > 1:
                    without = without + gossip.moves(without, step + hop - 1)
                without = gossip.mixing @ without
                gains = gossip.test_loss(gossip.weights[step + hop]) - gossip.test_loss(without)
                found[row, peer] += float(gossip.shares @ gains)
    return found
