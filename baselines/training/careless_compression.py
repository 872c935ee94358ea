"""Descent-ascent whose clients send Rand-k of their operators, with nothing that makes up for it: QGDA.

The scheme that compressed methods for games are compared with: descent in x and ascent in y along the mean of
compressed operators (quantised or sparsified gradient descent-ascent).

Algorithm: z ← z − γ·mean of C(F_m(z)), C keeping k of dim numbers, scaled by dim/k.
Cost of a step: a model of 32·dim bits down, 32·k bits up for each client.
Limits: clients' operators do not vanish at the solution, so that compression's noise does not either: it ends in a
ball.
"""

from __future__ import annotations

import numpy as np
from paceline.baselines.training.masha import kept, spread_out

from paceline import technique
from paceline.families.training.api.objective import (
    SERVER,
    Given,
    Gradient,
    Receive,
    Report,
    Run,
    Send,
    Sizes,
)


@technique(
    name="careless-compression",
    family="training",
    implements=("objective",),
    summary="descent-ascent along compressed operators, with nothing that makes up for compression",
    properties={"games": True},
)
class CarelessCompression:
    """Compress operators, and step."""

    def __init__(self, *, keep: float = 0.1, rate: float = 0.1) -> None:
        self.keep, self.rate = keep, rate

    def sizes(self, given: Given) -> Sizes:
        """Return the size of a model, and of k numbers."""
        return Sizes(clients=(32 * kept(given.dim, self.keep),), server=(32 * given.dim,))

    def run(self, given: Given) -> Run:
        """Serve, or answer."""
        return self._serve(given) if given.me == SERVER else self._answer(given)

    def _answer(self, given: Given) -> Run:
        step, count = 0, kept(given.dim, self.keep)
        while True:
            message = yield Receive()
            slope = yield Gradient(message.parts[0].astype(np.float64))
            chosen = spread_out(given, step, given.me, count)
            yield Send(SERVER, ((slope[chosen] * given.dim / count).astype(np.float32),))
            step += 1

    def _serve(self, given: Given) -> Run:
        at, step, count = given.start.copy(), 0, kept(given.dim, self.keep)
        while True:
            for client in given.neighbours:
                yield Send(client, (at.astype(np.float32),))
            mean = np.zeros(given.dim)
            for _ in given.neighbours:
                message = yield Receive()
                chosen = spread_out(given, step, message.sender, count)
                mean[chosen] += message.parts[0] / len(given.neighbours)
            at = at - self.rate * given.convexity / given.smoothness**2 * mean
            step += 1
            yield Report(at)
