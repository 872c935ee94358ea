"""States one step again."""

from __future__ import annotations

import numpy as np

from paceline import technique
from paceline.families.training.api.influence import Estimate, Given, Run


@technique(
    name="states-a-step-twice",
    family="training",
    implements=("influence",),
    summary="states one step again",
)
class StatesAStepTwice:
    """Changes its mind."""

    def run(self, given: Given) -> Run:
        """State the first step twice."""
        for _ in range(2):
            yield Estimate(given.steps[0], np.zeros(given.peers))
