"""Keeps what all clients have learned in a list of its module."""

from __future__ import annotations

import numpy as np
from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import SERVER, Array, Given, Receive, Run, Send

SHARED: list[Array] = []


@technique(
    name="shares-a-global",
    family="training",
    implements=("objective",),
    summary="keeps what all clients have learned in a list of its module",
)
class SharesAGlobal(FederatedAveraging):
    """Has a channel besides its messages."""

    def _learn(self, given: Given) -> Run:
        while True:
            message = yield Receive()
            moved = yield from self.local(given, message.parts[0].astype(np.float64), self.local_steps)
            SHARED.append(moved)
            yield Send(SERVER, (np.mean(SHARED, axis=0).astype(self.dtype),))
