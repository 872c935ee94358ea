"""Sends to a client that is no neighbour."""

from __future__ import annotations

from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import Given, Receive, Run, Send


@technique(
    name="talks-beside-the-graph",
    family="training",
    implements=("objective",),
    summary="sends to a client that is no neighbour",
)
class TalksBeside(FederatedAveraging):
    """Has links of its own."""

    def _learn(self, given: Given) -> Run:
        yield Receive()
        yield Send(given.me % 2 + 1, (given.start.astype(self.dtype),))
