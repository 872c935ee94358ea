"""Leaves the last client out of the mean, and says that it is federated averaging."""

from __future__ import annotations

import numpy as np
from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import Given, Receive, Report, Run, Send


@technique(
    name="averages-wrongly",
    family="training",
    implements=("objective",),
    summary="leaves the last client out of the mean, and says that it is federated averaging",
    properties={
        "equals": {
            "plain": "federated-averaging",
            "arguments": {
                "rate": 0.5,
                "local_steps": 3,
                "minibatch": 0,
                "single": False,
                "asynchronous": False,
            },
            "rate": 0.5,
            "steps": 3,
        }
    },
)
class AveragesWrongly(FederatedAveraging):
    """Has another mean."""

    def _serve_all(self, given: Given) -> Run:
        model = given.start.copy()
        while True:
            for client in given.neighbours:
                yield Send(client, (model.astype(self.dtype),))
            told: dict[int, np.ndarray] = {}
            while len(told) < len(given.neighbours):
                message = yield Receive()
                told[message.sender] = message.parts[0].astype(np.float64)
            model = model + np.mean([told[c] for c in given.neighbours[:-1]], axis=0)
            yield Report(model)
