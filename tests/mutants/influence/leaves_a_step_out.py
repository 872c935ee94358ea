"""States the influence of the first step alone."""

from __future__ import annotations

import numpy as np

from paceline import technique
from paceline.families.training.api.influence import Estimate, Given, Run


@technique(
    name="leaves-a-step-out",
    family="training",
    implements=("influence",),
    summary="states the influence of the first step alone",
)
class LeavesAStepOut:
    """Does less."""

    def run(self, given: Given) -> Run:
        """State one step."""
        yield Estimate(given.steps[0], np.zeros(given.peers))
