"""Draws its code anew every time it is run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from paceline.baselines.training.gradient_coding import GradientCoding

from paceline import technique
from paceline.families.training.api.coding import Given, Run


@technique(
    name="tosses-a-coin",
    family="training",
    implements=("coded_gradients",),
    summary="draws its code anew every time it is run",
)
class TossesACoin(GradientCoding):
    """Nobody can run it again."""

    def __init__(self) -> None:
        super().__init__(stragglers=1)

    def run(self, given: Given) -> Run:
        """Draw the seed of its code."""
        yield from super().run(replace(given, seed=int(np.random.default_rng().integers(1 << 30))))
