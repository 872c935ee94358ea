"""Trains for ever, and shows no model."""

from __future__ import annotations

from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import Given, Receive, Run


@technique(
    name="never-reports",
    family="training",
    implements=("objective",),
    summary="trains for ever, and shows no model",
)
class NeverReports(FederatedAveraging):
    """Has nothing to show."""

    def _serve_all(self, given: Given) -> Run:
        yield Receive()
