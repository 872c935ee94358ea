"""Waits until an instant that has passed."""

from __future__ import annotations

from paceline.baselines.training.gradient_coding import GradientCoding

from paceline import technique
from paceline.families.training.api.coding import Assign, Given, Run, Task, Wait


@technique(
    name="waits-for-the-past",
    family="training",
    implements=("coded_gradients",),
    summary="waits until an instant that has passed",
)
class WaitsForThePast(GradientCoding):
    """Turns the clock back."""

    def run(self, given: Given) -> Run:
        """Wait until the run's beginning."""
        yield Assign(tuple((Task(0, (i,), (1.0,)),) for i in range(given.workers)))
        yield Wait()
        yield Wait(0.0)
