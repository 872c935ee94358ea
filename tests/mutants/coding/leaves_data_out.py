"""Cuts nine tenths of the data into chunks."""

from __future__ import annotations

from paceline.baselines.training.gradient_coding import GradientCoding

from paceline import technique
from paceline.families.training.api.coding import Given, Plan


@technique(
    name="leaves-data-out",
    family="training",
    implements=("coded_gradients",),
    summary="cuts nine tenths of the data into chunks",
)
class LeavesDataOut(GradientCoding):
    """Does less."""

    def plan(self, given: Given) -> Plan:
        """Leave a tenth out."""
        whole = super().plan(given)
        return Plan(shares=tuple(0.9 * s for s in whole.shares), delay=0)
