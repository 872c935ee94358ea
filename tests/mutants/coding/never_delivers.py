"""Delivers nothing."""

from __future__ import annotations

from paceline.baselines.training.gradient_coding import GradientCoding

from paceline import technique
from paceline.families.training.api.coding import Deliver, Given, Run


@technique(
    name="never-delivers",
    family="training",
    implements=("coded_gradients",),
    summary="delivers nothing",
)
class NeverDelivers(GradientCoding):
    """Computes for nobody."""

    def run(self, given: Given) -> Run:
        """Stop before the first delivery."""
        inner, answer = super().run(given), None
        while not isinstance(request := inner.send(answer), Deliver):
            answer = yield request
