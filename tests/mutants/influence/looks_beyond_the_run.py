"""Asks for weights after the last step."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.influence import Given, Run, TestGradient


@technique(
    name="looks-beyond-the-run",
    family="training",
    implements=("influence",),
    summary="asks for weights after the last step",
)
class LooksBeyondTheRun:
    """Looks too far."""

    def run(self, given: Given) -> Run:
        """Ask one hop too far."""
        yield TestGradient(0, given.steps[-1] + given.hops + 1)
