"""Sends an object instead of numbers."""

from __future__ import annotations

from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import SERVER, Given, Receive, Run, Send


@technique(
    name="hands-over-objects",
    family="training",
    implements=("objective",),
    summary="sends an object instead of numbers",
)
class HandsOverObjects(FederatedAveraging):
    """Sends itself."""

    def _learn(self, given: Given) -> Run:
        yield Receive()
        yield Send(SERVER, (self,))
