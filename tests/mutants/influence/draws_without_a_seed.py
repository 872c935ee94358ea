"""States numbers that nobody can draw again."""

from __future__ import annotations

import numpy as np

from paceline import technique
from paceline.families.training.api.influence import Estimate, Given, Run


@technique(
    name="draws-without-a-seed",
    family="training",
    implements=("influence",),
    summary="states numbers that nobody can draw again",
)
class DrawsWithoutASeed:
    """Tosses a coin."""

    def run(self, given: Given) -> Run:
        """Draw from nowhere."""
        for step in given.steps:
            yield Estimate(step, np.random.default_rng().standard_normal(given.peers))
