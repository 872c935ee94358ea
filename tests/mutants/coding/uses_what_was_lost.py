"""Delivers results of workers that it did not wait for."""

from __future__ import annotations

from paceline.baselines.training.gradient_coding import GradientCoding

from paceline import technique
from paceline.families.training.api.coding import Assign, Deliver, End, Given, Run, Task, Wait


@technique(
    name="uses-what-was-lost",
    family="training",
    implements=("coded_gradients",),
    summary="delivers results of workers that it did not wait for",
)
class UsesWhatWasLost(GradientCoding):
    """Does not wait."""

    def run(self, given: Given) -> Run:
        """End the round with the first worker, and use all."""
        n = given.workers
        for job in range(given.jobs):
            yield Assign(tuple((Task(job, (i,), (1.0,)),) for i in range(n)))
            yield Wait()
            yield End()
            yield Deliver(job, tuple((job, i, 0) for i in range(n)), (1.0,) * n)
