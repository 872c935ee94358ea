"""Backup workers: a server steps on the fastest k of n gradients, and drops the others.

Chen et al., "Revisiting Distributed Synchronous SGD" (2016): with b of n workers in reserve the server waits for n − b
gradients of the current model.

Algorithm: the server sends w to all; a worker computes a gradient of the newest w that it has; after k = n − b
gradients of this w the server takes w ← w − η·mean, and sends again. Late gradients are dropped on arrival.
Cost of a step: n models down and at most n gradients up, of 32·dim bits each, and a round number.
Limits: b is chosen once; what is best changes with the noise that the mean of k leaves, and with who is slow.
"""

from __future__ import annotations

import numpy as np

from paceline import technique
from paceline.families.training.api.objective import (
    SERVER,
    Given,
    LossAndGradient,
    Now,
    Receive,
    Report,
    Run,
    Send,
    Sizes,
)

ROUND = 32
"""Bits of a round's number."""


@technique(
    name="backup-workers",
    family="training",
    implements=("objective",),
    summary="a server steps on the fastest k of n gradients, with k fixed",
    properties={
        "equals": {
            "plain": "gradient-descent",
            "arguments": {"backups": 0, "minibatch": 0, "rate": 0.5, "single": False},
            "rate": 0.5,
        }
    },
)
class BackupWorkers:
    """Step on the first n − b gradients."""

    def __init__(
        self, *, backups: int = 0, rate: float = 0.5, minibatch: int = 8, single: bool = True
    ) -> None:
        self.backups, self.rate, self.minibatch = backups, rate, minibatch
        self.dtype = np.float32 if single else np.float64

    def sizes(self, given: Given) -> Sizes:
        """Return a model's size down, and that of a gradient with its loss up."""
        width = 8 * np.dtype(self.dtype).itemsize
        return Sizes(clients=((given.dim + 1) * width + ROUND,), server=(given.dim * width + ROUND,))

    def run(self, given: Given) -> Run:
        """Serve, or work."""
        return self._serve(given) if given.me == SERVER else self._work(given)

    def _work(self, given: Given) -> Run:
        while True:
            newest = yield Receive()
            # What waits is older than what comes last: a late worker catches up here.
            now_s = yield Now()
            while (later := (yield Receive(until_s=now_s))) is not None:
                newest = later
            model, number = newest.parts
            loss, gradient = yield LossAndGradient(model.astype(np.float64), self.minibatch)
            told = np.concatenate([[loss], gradient]).astype(self.dtype)
            yield Send(SERVER, (told, number.copy()))

    def _serve(self, given: Given) -> Run:
        workers = given.neighbours
        model, number = given.start.copy(), 0
        while True:
            wanted = self.choose(given, number)
            for worker in workers:
                yield Send(worker, (model.astype(self.dtype), np.array([number], dtype=np.int32)))
            begin_s = yield Now()
            told: list[np.ndarray] = []
            while len(told) < wanted:
                message = yield Receive()
                if int(message.parts[1][0]) == number:
                    told.append(message.parts[0].astype(np.float64))
                    self.arrived(len(told), message.at_s - begin_s)
                else:
                    self.late(int(message.parts[1][0]), message.at_s)
            gradients = np.array(told)[:, 1:]
            mean = gradients.mean(axis=0)
            self.stepped(given, gradients, float(np.mean([t[0] for t in told])), model)
            model = model - self.rate / given.smoothness * mean
            number += 1
            yield Report(model)

    def choose(self, given: Given, number: int) -> int:
        """Return for how many gradients the server waits."""
        return max(1, len(given.neighbours) - self.backups)

    def arrived(self, place: int, after_s: float) -> None:
        """Note when the first, second, … gradient of a step came."""

    def late(self, number: int, at_s: float) -> None:
        """Note a gradient of an earlier step."""

    def stepped(self, given: Given, gradients: np.ndarray, loss: float, model: np.ndarray) -> None:
        """Note what a step was made of."""
