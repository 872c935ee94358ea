"""DICE: the influence of a peer's data on others, followed along the walks of a gossip graph by derivatives.

Zhu et al., 2025, "DICE: Data Influence Cascade in Decentralized Learning" (ICLR; arXiv:2507.06931), the estimator over
r hops.

Algorithm, for the displacement Δ of peer j in step t (W: mixing, q: shares, η: rate, L: held-out loss, H: Hessian of a
minibatch):
1. At once: q_j·∇L(θ_j)ᵀ·Δ.
2. What a missing displacement would have changed in peers' weights after a hop is d₁ = W·e_j·Δᵀ; after another,
   d_{s+1} = W·(1 − η·H)·d_s, where each peer's row meets the Hessian of its own minibatch at its own weights.
3. After each hop s: Σ_k q_k·∇L(θ_k)ᵀ·d_s,k, at weights of that step.
The sum over all walks of s neighbours is taken at once, row by row.

Cost for r hops: a gradient of every peer that a displacement has reached, and a Hessian product of each but in the last
hop, for every peer and step.
Limits: it is a derivative: long displacements, and losses that bend within one, are estimated wrongly.
"""

from __future__ import annotations

import numpy as np

from paceline import technique
from paceline.families.training.api.influence import (
    Displacement,
    Estimate,
    Given,
    HessianProduct,
    Run,
    TestGradient,
)


@technique(
    name="dice",
    family="training",
    implements=("influence",),
    summary="influence along walks of the gossip graph, by gradients and Hessian products",
    paper="dice",
    properties={"derivative": True},
    fidelity={
        "source": {
            "read": "paper",
            "paper": "theorem on r hops, as the authors' post of July 2025 states it",
            "code": "none read",
        },
        "deviations": (
            "The theorem has both the rate and the displacement before a gradient, with a sign; here the displacement "
            "stands alone, which is the derivative of the loss.",
            "Walks may stay at a peer: mixing keeps a share of its own weights.",
            "Products along all walks of one length are summed peer by peer, instead of walk by walk.",
        ),
        "constants": {},
        "checked_by": (
            "tests/unit/test_influence.py::test_estimates_are_sums_over_walks",
            "tests/unit/test_influence.py::test_at_small_rates_estimates_are_the_influence",
        ),
    },
)
class Dice:
    """Follow every displacement from hop to hop."""

    def run(self, given: Given) -> Run:
        """Estimate step by step."""
        for step in given.steps:
            influence = np.zeros(given.peers)
            gradients = {}
            for hop in range(given.hops + 1):
                for peer in range(given.peers):
                    gradients[hop, peer] = yield TestGradient(peer, step + hop)
            for peer in range(given.peers):
                moved = yield Displacement(peer, step)
                influence[peer] = given.shares[peer] * (gradients[0, peer] @ moved)
                changed = np.zeros((given.peers, len(moved)))
                changed[peer] = moved
                for hop in range(1, given.hops + 1):
                    if hop > 1:
                        changed = yield from self._stepped(changed, given, step + hop - 1)
                    changed = given.mixing @ changed
                    influence[peer] += sum(
                        given.shares[k] * (gradients[hop, k] @ changed[k]) for k in range(given.peers)
                    )
            yield Estimate(step, influence)

    def _stepped(self, changed: np.ndarray, given: Given, step: int) -> Run:
        """Return what is left of changes after peers' own steps, [peers, dim]."""
        found = changed.copy()
        for peer in range(given.peers):
            if changed[peer].any():
                product = yield HessianProduct(peer, step, changed[peer].copy())
                found[peer] -= given.rate * product
        return found
