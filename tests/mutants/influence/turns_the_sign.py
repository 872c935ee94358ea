"""Promises the derivative, and states its negative."""

from __future__ import annotations

from paceline.baselines.training.dice import Dice

from paceline import technique
from paceline.families.training.api.influence import Estimate, Given, Run


@technique(
    name="turns-the-sign",
    family="training",
    implements=("influence",),
    summary="promises the derivative, and states its negative",
    properties={"derivative": True},
)
class TurnsTheSign(Dice):
    """Takes harm for help."""

    def run(self, given: Given) -> Run:
        """Turn every estimate round."""
        inner, answer = super().run(given), None
        while True:
            try:
                request = inner.send(answer)
            except StopIteration:
                return
            if isinstance(request, Estimate):
                request = Estimate(request.step, -request.influence)
            answer = yield request
