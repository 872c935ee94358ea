"""Asks for one gradient without noise, and says nothing of it."""

from __future__ import annotations

from paceline.baselines.training.private_descent import PrivateDescent

from paceline import technique
from paceline.families.training.api.objective import Given, Gradient, Run


@technique(
    name="looks-without-noise",
    family="training",
    implements=("objective",),
    summary="asks for one gradient without noise, and says nothing of it",
    properties={"private": True},
)
class LooksWithoutNoise(PrivateDescent):
    """Reveals a gradient."""

    def _release(self, given: Given) -> Run:
        yield Gradient(given.start)
        yield from super()._release(given)
