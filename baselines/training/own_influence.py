"""Own influence: what a peer's displacement does to its own loss, which no graph enters.

Algorithm, for the displacement Δ of peer j: q_j·∇L(θ_j)ᵀ·Δ (q: shares, L: held-out loss), a derivative of one step as
gradient tracing takes it (Pruthi et al., 2020, "Estimating Training Data Influence by Tracing Gradient Descent").
Cost: one gradient for every peer and step.
"""

from __future__ import annotations

import numpy as np

from paceline import technique
from paceline.families.training.api.influence import Displacement, Estimate, Given, Run, TestGradient


@technique(
    name="own-influence",
    family="training",
    implements=("influence",),
    summary="what a step does to the peer's own loss, without the graph",
)
class OwnInfluence:
    """Multiply each displacement by its peer's gradient."""

    def run(self, given: Given) -> Run:
        """Estimate step by step."""
        for step in given.steps:
            influence = np.zeros(given.peers)
            for peer in range(given.peers):
                gradient = yield TestGradient(peer, step)
                moved = yield Displacement(peer, step)
                influence[peer] = given.shares[peer] * (gradient @ moved)
            yield Estimate(step, influence)
