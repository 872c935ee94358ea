"""Begins the next job before its model has moved."""

from __future__ import annotations

from paceline.baselines.training.gradient_coding import GradientCoding

from paceline import technique
from paceline.families.training.api.coding import Assign, End, Given, Run, Task


@technique(
    name="begins-ahead",
    family="training",
    implements=("coded_gradients",),
    summary="begins the next job before its model has moved",
)
class BeginsAhead(GradientCoding):
    """Works on weights of the past."""

    def run(self, given: Given) -> Run:
        """Begin job 1 in round 1, and never deliver job 0."""
        n = given.workers
        for job in range(2):
            yield Assign(tuple((Task(job, (i,), (1.0,)),) for i in range(n)))
            yield End()
