"""Sends its model twice, and says once."""

from __future__ import annotations

import numpy as np
from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import SERVER, Given, Receive, Run, Send


@technique(
    name="sends-more-than-it-says",
    family="training",
    implements=("objective",),
    summary="sends its model twice, and says once",
)
class SendsMore(FederatedAveraging):
    """Says half of what it sends."""

    def _learn(self, given: Given) -> Run:
        while True:
            message = yield Receive()
            moved = yield from self.local(given, message.parts[0].astype(np.float64), self.local_steps)
            yield Send(SERVER, (moved.astype(self.dtype), moved.astype(self.dtype)))
