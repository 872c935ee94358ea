"""DP-GD: gradient descent on means of clipped gradients with Gaussian noise, split over clients.

Bassily, Smith & Thakurta, 2014; Abadi et al., 2016, "Deep Learning with Differential Privacy"; here on all samples.

Algorithm: in each of T rounds every client releases the mean of its samples' gradients, each clipped to norm C, with
noise of deviation σ·C/n; the server takes x ← x − η·mean. σ is the least under which T releases leave (ε, δ).
Cost of a round: a model down and a gradient up for each client, of 32·dim bits each.
Limits: noise does not become less as gradients do; more rounds need more noise in each of them.
"""

from __future__ import annotations

import math

import numpy as np

from paceline import technique
from paceline.families.training.api.objective import (
    SERVER,
    Array,
    Given,
    PrivateGradient,
    Receive,
    Report,
    Run,
    Send,
    Sizes,
)

REPLACED = 2.0
"""What a sample that is replaced changes of a sum of clipped vectors, in units of the clip."""


def zcdp_of(epsilon: float, delta: float) -> float:
    """Return the concentrated privacy ρ that is enough for (ε, δ): ρ + 2·√(ρ·log(1/δ)) = ε (Bun & Steinke, 2016)."""
    log = math.log(1.0 / delta)
    return (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


def noise_for(releases: float, given: Given, share: float = 1.0) -> float:
    """Return σ, in units of the clip, for some releases that may use a share of a point's ρ: ρ = T·(2/σ)²/2."""
    return REPLACED * math.sqrt(releases / (2.0 * share * zcdp_of(given.epsilon, given.delta)))


@technique(
    name="private-descent",
    family="training",
    implements=("objective",),
    summary="gradient descent on clipped gradients with Gaussian noise",
    properties={
        "private": True,
        "equals": {
            "plain": "gradient-descent",
            "arguments": {"rate": 0.5, "rounds": 20, "clip": 1e6, "quiet": True, "single": False},
            "rate": 0.5,
        },
    },
)
class PrivateDescent:
    """Descend on noisy means."""

    def __init__(
        self,
        quiet: bool = False,
        *,
        rate: float = 0.5,
        rounds: int = 100,
        clip: float = 1.0,
        single: bool = True,
    ) -> None:
        self.quiet, self.rate, self.rounds, self.clip = quiet, rate, rounds, clip
        self.dtype = np.float32 if single else np.float64

    def sizes(self, given: Given) -> Sizes:
        """Return the size of a model, both ways."""
        size = given.dim * 8 * np.dtype(self.dtype).itemsize
        return Sizes(clients=(size,), server=(size,))

    def run(self, given: Given) -> Run:
        """Serve, or release."""
        return self._serve(given) if given.me == SERVER else self._release(given)

    def _release(self, given: Given) -> Run:
        noise = 0.0 if self.quiet else noise_for(self.rounds, given)
        for _ in range(self.rounds):
            message = yield Receive()
            told = yield PrivateGradient(message.parts[0].astype(np.float64), self.clip, noise)
            yield Send(SERVER, (told.astype(self.dtype),))

    def _mean(self, given: Given) -> Run:
        told: dict[int, Array] = {}
        while len(told) < len(given.neighbours):
            message = yield Receive()
            told[message.sender] = message.parts[0].astype(np.float64)
        return np.mean([told[c] for c in given.neighbours], axis=0)

    def _serve(self, given: Given) -> Run:
        model = given.start.copy()
        for _ in range(self.rounds):
            for client in given.neighbours:
                yield Send(client, (model.astype(self.dtype),))
            model = model - self.rate / given.smoothness * (yield from self._mean(given))
            yield Report(model)
