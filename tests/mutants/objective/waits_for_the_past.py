"""Waits until an instant that is over."""

from __future__ import annotations

from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import Given, Receive, Run, Send


@technique(
    name="waits-for-the-past",
    family="training",
    implements=("objective",),
    summary="waits until an instant that is over",
)
class WaitsForThePast(FederatedAveraging):
    """Turns the clock back."""

    def _serve_all(self, given: Given) -> Run:
        for client in given.neighbours:
            yield Send(client, (given.start.astype(self.dtype),))
        yield Receive()
        yield Receive(until_s=0.0)
