"""Promises the derivative, and mixes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from paceline.baselines.training.dice import Dice

from paceline import technique
from paceline.families.training.api.influence import Given, Run


@technique(
    name="forgets-the-graph",
    family="training",
    implements=("influence",),
    summary="promises the derivative, and mixes nothing",
    properties={"derivative": True},
)
class ForgetsTheGraph(Dice):
    """Keeps changes where they were."""

    def run(self, given: Given) -> Run:
        """Follow changes without neighbours."""
        return super().run(replace(given, mixing=np.eye(given.peers)))
