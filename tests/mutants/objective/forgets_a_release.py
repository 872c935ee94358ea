"""Counts half of its releases."""

from __future__ import annotations

import numpy as np
from paceline.baselines.training.private_descent import PrivateDescent, noise_for

from paceline import technique
from paceline.families.training.api.objective import SERVER, Given, PrivateGradient, Receive, Run, Send


@technique(
    name="forgets-a-release",
    family="training",
    implements=("objective",),
    summary="counts half of its releases",
    properties={"private": True},
)
class ForgetsARelease(PrivateDescent):
    """Has noise for half of what it reveals."""

    def _release(self, given: Given) -> Run:
        noise = noise_for(self.rounds / 4, given)
        for _ in range(self.rounds):
            message = yield Receive()
            told = yield PrivateGradient(message.parts[0].astype(np.float64), self.clip, noise)
            yield Send(SERVER, (told.astype(self.dtype),))
