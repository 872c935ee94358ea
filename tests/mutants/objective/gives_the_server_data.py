"""Lets the server ask for a gradient."""

from __future__ import annotations

from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import Given, Gradient, Report, Run


@technique(
    name="gives-the-server-data",
    family="training",
    implements=("objective",),
    summary="lets the server ask for a gradient",
)
class GivesTheServerData(FederatedAveraging):
    """Has a server that learns by itself."""

    def _serve_all(self, given: Given) -> Run:
        yield Report(given.start - (yield Gradient(given.start)))
