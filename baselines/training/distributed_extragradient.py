"""Extragradient over a server, without compression: two exchanges of whole operators in every step.

Korpelevich, 1976; Juditsky, Nemirovski & Tauvel, 2011, for its distributed form.

Algorithm: z½ = z − γ·F(z), then z ← z − γ·F(z½), where F is the mean of the clients' operators.
Cost of a step: two models down and two operators up for each client, of 32·dim bits each.
Limits: rotation makes plain descent circle or diverge; this step does not, at twice the exchanges.
"""

from __future__ import annotations

import numpy as np

from paceline import technique
from paceline.families.training.api.objective import (
    SERVER,
    Array,
    Given,
    Gradient,
    Receive,
    Report,
    Run,
    Send,
    Sizes,
)


@technique(
    name="distributed-extragradient",
    family="training",
    implements=("objective",),
    summary="two steps along the mean operator, the first of which only looks",
    properties={
        "games": True,
        "equals": {"plain": "extragradient", "arguments": {"rate": 0.5, "single": False}, "rate": 0.5},
    },
)
class DistributedExtragradient:
    """Ask for the mean operator twice in a step."""

    def __init__(self, *, rate: float = 0.5, single: bool = True) -> None:
        self.rate, self.dtype = rate, np.float32 if single else np.float64

    def sizes(self, given: Given) -> Sizes:
        """Return the size of a model and of an operator."""
        size = given.dim * 8 * np.dtype(self.dtype).itemsize
        return Sizes(clients=(size,), server=(size,))

    def run(self, given: Given) -> Run:
        """Serve, or answer."""
        return self._serve(given) if given.me == SERVER else self._answer(given)

    def _answer(self, given: Given) -> Run:
        while True:
            message = yield Receive()
            slope = yield Gradient(message.parts[0].astype(np.float64))
            yield Send(SERVER, (slope.astype(self.dtype),))

    def _mean(self, given: Given, at: Array) -> Run:
        for client in given.neighbours:
            yield Send(client, (at.astype(self.dtype),))
        told: dict[int, Array] = {}
        while len(told) < len(given.neighbours):
            message = yield Receive()
            told[message.sender] = message.parts[0].astype(np.float64)
        # in the clients' order: sums of floating-point numbers depend on it
        return np.mean([told[c] for c in given.neighbours], axis=0)

    def _serve(self, given: Given) -> Run:
        at, rate = given.start.copy(), self.rate / given.smoothness
        while True:
            ahead = at - rate * (yield from self._mean(given, at))
            at = at - rate * (yield from self._mean(given, ahead))
            yield Report(at)
