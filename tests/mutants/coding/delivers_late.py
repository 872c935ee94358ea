"""Delivers each job a round later than it says."""

from __future__ import annotations

from paceline.baselines.training.gradient_coding import GradientCoding

from paceline import technique
from paceline.families.training.api.coding import Assign, Deliver, End, Given, Run, Task, Wait


@technique(
    name="delivers-late",
    family="training",
    implements=("coded_gradients",),
    summary="delivers each job a round later than it says",
)
class DeliversLate(GradientCoding):
    """Says that it has no delay."""

    def run(self, given: Given) -> Run:
        """Do the first job twice before it is delivered."""
        n = given.workers
        number = 0
        for job in range(given.jobs):
            for _ in range(2):
                yield Assign(tuple((Task(job, (i,), (1.0,)),) for i in range(n)))
                while (yield Wait()) is not None:
                    pass
                yield End()
                number += 1
            yield Deliver(job, tuple((number - 1, i, 0) for i in range(n)), (1.0,) * n)
