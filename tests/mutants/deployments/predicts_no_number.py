"""Predicts a time below none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.baselines.serving.apex_sim import Apex

from paceline import technique
from paceline.families.serving.api.predicting import Asked, Configuration, Predicted, StepCosts


@technique(name="predicts-no-number", family="serving", implements=("predict",), summary="known to be wrong")
class Mutant(Apex):
    """Known to be wrong."""

    def predict(self, trace: Sequence[Asked], configuration: Configuration, costs: StepCosts) -> Predicted:
        """Predict what is wrong."""
        return replace(super().predict(trace, configuration, costs), makespan_s=-1.0)
