"""Draws the paces of all clients, to know who will be slow."""

from __future__ import annotations

from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import Given, Run
from paceline.families.training.ops.objective.paces import Paces


@technique(
    name="reads-the-clock-ahead",
    family="training",
    implements=("objective",),
    summary="draws the paces of all clients, to know who will be slow",
)
class ReadsAhead(FederatedAveraging):
    """Asks the clock what will be."""

    def _serve_all(self, given: Given) -> Run:
        paces = Paces({"pace": "spread"}, len(given.neighbours), given.shared_seed + 1)
        self.local_steps = int(paces.duration_s(0, 0.0, value=False))
        return super()._serve_all(given)
