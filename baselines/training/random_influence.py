"""Random influence: numbers that know nothing, which whatever estimates influence has to beat.

Algorithm: standard normal numbers, from the seed that the estimator is told.
Cost: nothing is asked for.
"""

from __future__ import annotations

import numpy as np

from paceline import technique
from paceline.families.training.api.influence import Estimate, Given, Run


@technique(
    name="random-influence",
    family="training",
    implements=("influence",),
    summary="random numbers in the place of influence",
)
class RandomInfluence:
    """Draw."""

    def run(self, given: Given) -> Run:
        """State numbers."""
        draw = np.random.default_rng(given.seed)
        for step in given.steps:
            yield Estimate(step, draw.standard_normal(given.peers))
