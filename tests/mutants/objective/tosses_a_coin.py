"""Draws from a generator that nobody seeded."""

from __future__ import annotations

import numpy as np
from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import SERVER, Given, Receive, Run, Send


@technique(
    name="tosses-a-coin",
    family="training",
    implements=("objective",),
    summary="draws from a generator that nobody seeded",
)
class TossesACoin(FederatedAveraging):
    """Cannot be repeated."""

    def _learn(self, given: Given) -> Run:
        while True:
            message = yield Receive()
            moved = yield from self.local(given, message.parts[0].astype(np.float64), self.local_steps)
            noise = np.random.default_rng().standard_normal(given.dim)
            yield Send(SERVER, ((moved + 1e-3 * noise).astype(self.dtype),))
