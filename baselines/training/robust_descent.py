"""Descent with a server that does not trust every gradient: means, medians, trimmed means, and the nearest to others.

``rule``, of n gradients of which f may be false:
- ``mean``: of all.
- ``median``: of every entry (Yin et al., 2018, "Byzantine-Robust Distributed Learning").
- ``trimmed-mean``: of every entry, without the f largest and the f smallest (the same).
- ``krum``: the gradient whose n − f − 2 nearest others are nearest, by the sum of squared distances (Blanchard et al.,
  2017, "Machine Learning with Adversaries").
- ``multi-krum``: the mean of the n − f − 2 best by that sum (the same, and El Mhamdi et al., 2018).

Algorithm: the server sends w to all; clients send gradients; w ← w − η/(1 + t/``falls``)·rule.
Cost of a step: a model down and a gradient up for each client, 32·dim bits each.
Limits: nobody is late here: the server waits for all. Medians and distances are biased where clients' data differ.
"""

from __future__ import annotations

from typing import Literal

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

Rule = Literal["mean", "median", "trimmed-mean", "krum", "multi-krum"]


def nearest(gradients_ND: Array, false: int) -> Array:
    """Return the sum of squared distances of each gradient to its n − f − 2 nearest others, [n]."""
    count = max(1, len(gradients_ND) - false - 2)
    apart = ((gradients_ND[:, None] - gradients_ND[None]) ** 2).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    found: Array = np.sort(apart, axis=1)[:, :count].sum(axis=1)
    return found


def aggregated(rule: Rule, gradients_ND: Array, false: int) -> Array:
    """Return what a rule makes of gradients, [dim]; f of them may be false."""
    found: Array
    if rule == "median":
        found = np.median(gradients_ND, axis=0)
    elif rule == "trimmed-mean":
        ordered = np.sort(gradients_ND, axis=0)
        found = ordered[false : len(ordered) - false].mean(axis=0)
    elif rule == "krum":
        found = gradients_ND[int(np.argmin(nearest(gradients_ND, false)))]
    elif rule == "multi-krum":
        best = np.argsort(nearest(gradients_ND, false), kind="stable")
        found = gradients_ND[np.sort(best[: max(1, len(best) - false - 2)])].mean(axis=0)
    else:
        found = gradients_ND.mean(axis=0)
    return found


@technique(
    name="robust-descent",
    family="training",
    implements=("objective",),
    summary="a server steps along a mean, a median or a trimmed mean of gradients, or along the nearest to others",
    properties={
        "equals": {
            "plain": "gradient-descent",
            "arguments": {"rule": "mean", "minibatch": 0, "rate": 0.5, "falls": 0.0, "single": False},
            "rate": 0.5,
        }
    },
)
class RobustDescent:
    """Collect all gradients, and step along what the rule makes of them."""

    def __init__(
        self,
        *,
        rule: Rule = "mean",
        rate: float = 0.5,
        falls: float = 50.0,
        minibatch: int = 8,
        single: bool = True,
    ) -> None:
        self.rule, self.rate, self.falls, self.minibatch = rule, rate, falls, minibatch
        self.dtype = np.float32 if single else np.float64

    def sizes(self, given: Given) -> Sizes:
        """Return a model's size down, and a gradient's up."""
        width = 8 * np.dtype(self.dtype).itemsize * given.dim
        return Sizes(clients=(width,), server=(width,))

    def run(self, given: Given) -> Run:
        """Serve, or work."""
        return self._serve(given) if given.me == SERVER else self._work(given)

    def _work(self, given: Given) -> Run:
        while True:
            message = yield Receive()
            gradient = yield Gradient(message.parts[0].astype(np.float64), self.minibatch)
            yield Send(SERVER, (gradient.astype(self.dtype),))

    def _serve(self, given: Given) -> Run:
        model, number = given.start.copy(), 0
        false = int(given.facts.get("byzantine", 0))
        while True:
            for client in given.neighbours:
                yield Send(client, (model.astype(self.dtype),))
            told: dict[int, Array] = {}
            while len(told) < len(given.neighbours):
                message = yield Receive()
                told[message.sender] = message.parts[0].astype(np.float64)
            # In the clients' order: sums of floating-point numbers depend on it.
            gradients_ND = np.array([told[client] for client in given.neighbours])
            rate = self.rate / given.smoothness / (1 + number / self.falls if self.falls else 1)
            model = model - rate * self.aggregate(gradients_ND, false)
            number += 1
            yield Report(model)

    def aggregate(self, gradients_ND: Array, false: int) -> Array:
        """Return the direction to step against, [dim]."""
        return aggregated(self.rule, gradients_ND, false)
