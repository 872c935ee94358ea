"""Asks for a gradient of a peer that is not there."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.influence import Given, Run, TestGradient


@technique(
    name="asks-of-nobody",
    family="training",
    implements=("influence",),
    summary="asks for a gradient of a peer that is not there",
)
class AsksOfNobody:
    """Counts wrongly."""

    def run(self, given: Given) -> Run:
        """Ask of one too many."""
        for step in given.steps:
            yield TestGradient(given.peers, step)
