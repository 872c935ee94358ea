"""States numbers that are not finite."""

from __future__ import annotations

import numpy as np

from paceline import technique
from paceline.families.training.api.influence import Estimate, Given, Run


@technique(
    name="states-no-number",
    family="training",
    implements=("influence",),
    summary="states numbers that are not finite",
)
class StatesNoNumber:
    """Divides by nothing."""

    def run(self, given: Given) -> Run:
        """State infinities."""
        for step in given.steps:
            yield Estimate(step, np.full(given.peers, np.inf))
