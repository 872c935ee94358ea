"""Adds up what came first, without a code."""

from __future__ import annotations

from paceline.baselines.training.gradient_coding import GradientCoding

from paceline import technique
from paceline.families.training.api.coding import Assign, Deliver, End, Given, Run, Task, Wait


@technique(
    name="forgets-a-worker",
    family="training",
    implements=("coded_gradients",),
    summary="adds up what came first, without a code",
)
class ForgetsAWorker(GradientCoding):
    """Takes a part for the whole."""

    def run(self, given: Given) -> Run:
        """Deliver the sum of all chunks but the last one's."""
        n = given.workers
        for job in range(given.jobs):
            yield Assign(tuple((Task(job, (i,), (1.0,)),) for i in range(n)))
            came = []
            while len(came) < n - 1:
                arrival = yield Wait()
                came.append(arrival.worker)
            yield End()
            yield Deliver(job, tuple((job, i, 0) for i in came), (1.0,) * len(came))
