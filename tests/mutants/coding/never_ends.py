"""Begins rounds for ever."""

from __future__ import annotations

from paceline.baselines.training.gradient_coding import GradientCoding

from paceline import technique
from paceline.families.training.api.coding import Assign, End, Given, Run


@technique(
    name="never-ends",
    family="training",
    implements=("coded_gradients",),
    summary="begins rounds for ever",
)
class NeverEnds(GradientCoding):
    """Does not come to an end."""

    def run(self, given: Given) -> Run:
        """Begin rounds without tasks."""
        while True:
            yield Assign(((),) * given.workers)
            yield End()
