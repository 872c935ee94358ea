"""Promises the derivative, and leaves the last hop out."""

from __future__ import annotations

from dataclasses import replace

from paceline.baselines.training.dice import Dice

from paceline import technique
from paceline.families.training.api.influence import Given, Run


@technique(
    name="stops-a-hop-early",
    family="training",
    implements=("influence",),
    summary="promises the derivative, and leaves the last hop out",
    properties={"derivative": True},
)
class StopsAHopEarly(Dice):
    """Takes it for nothing."""

    def run(self, given: Given) -> Run:
        """Follow changes for a hop less."""
        return super().run(replace(given, hops=given.hops - 1))
