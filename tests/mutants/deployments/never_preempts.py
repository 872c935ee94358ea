"""Simulates memory without end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.baselines.serving.apex_sim import Apex

from paceline import technique
from paceline.families.serving.api.predicting import Asked, Configuration, Predicted, StepCosts


@technique(name="never-preempts", family="serving", implements=("predict",), summary="known to be wrong")
class Mutant(Apex):
    """Known to be wrong."""

    def predict(self, trace: Sequence[Asked], configuration: Configuration, costs: StepCosts) -> Predicted:
        """Predict what is wrong."""
        return super().predict(trace, replace(configuration, num_blocks=10**6), costs)
