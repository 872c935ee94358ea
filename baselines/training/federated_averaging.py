"""Federated averaging: a server waits for all clients' local steps, and takes their mean.

McMahan et al., 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data".

Algorithm: the server sends x to all clients; each takes ``local_steps`` steps x_i ← x_i − η·∇f_i(x_i), and sends x_i −
x; the server adds Σ p_i·(x_i − x). ``asynchronous``: the server adds p_i·(x_i − x) when it comes, and sends that
client the new x at once (asynchronous federated averaging), weighed by ``mixing``·(1 + age)^−``ageing``, where age is
how many displacements were added since it began (Xie et al., 2019, "Asynchronous Federated Optimization").
Cost of a round: a model down and a model up for each client, of 32·dim bits each.
Limits: all wait for the slowest client; without waiting, fast clients count for more than their share.
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
    name="federated-averaging",
    family="training",
    implements=("objective",),
    summary="a server takes the mean of all clients' local steps, together or as each of them comes",
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
class FederatedAveraging:
    """Average displacements."""

    def __init__(
        self,
        *,
        rate: float = 0.5,
        local_steps: int = 10,
        minibatch: int = 0,
        asynchronous: bool = False,
        mixing: float = 1.0,
        ageing: float = 0.0,
        single: bool = True,
    ) -> None:
        self.rate, self.local_steps, self.minibatch = rate, local_steps, minibatch
        self.asynchronous, self.mixing, self.ageing = asynchronous, mixing, ageing
        self.dtype = np.float32 if single else np.float64

    def sizes(self, given: Given) -> Sizes:
        """Return the size of a model, both ways."""
        size = given.dim * 8 * np.dtype(self.dtype).itemsize
        return Sizes(clients=(size,), server=(size,))

    def run(self, given: Given) -> Run:
        """Serve, or learn."""
        if given.me != SERVER:
            return self._learn(given)
        return self._serve_each(given) if self.asynchronous else self._serve_all(given)

    def _learn(self, given: Given) -> Run:
        while True:
            message = yield Receive()
            moved = yield from self.local(given, message.parts[0].astype(np.float64), self.local_steps)
            yield Send(SERVER, (moved.astype(self.dtype),))

    def local(self, given: Given, begin: Array, steps: int) -> Run:
        """Take local steps, and return by how much they moved the model."""
        own = begin.copy()
        for _ in range(steps):
            own = own - self.rate / given.smoothness * (yield Gradient(own, self.minibatch))
        return own - begin

    def _serve_all(self, given: Given) -> Run:
        model = given.start.copy()
        while True:
            for client in given.neighbours:
                yield Send(client, (model.astype(self.dtype),))
            told: dict[int, Array] = {}
            while len(told) < len(given.neighbours):
                message = yield Receive()
                told[message.sender] = message.parts[0].astype(np.float64)
            # in the clients' order: sums of floating-point numbers depend on it
            model = model + sum(given.weights[c] * told[c] for c in given.neighbours)
            yield Report(model)

    def _serve_each(self, given: Given) -> Run:
        model, version = given.start.copy(), 0
        begun = dict.fromkeys(given.neighbours, 0)
        for client in given.neighbours:
            yield Send(client, (model.astype(self.dtype),))
        while True:
            message = yield Receive()
            age = version - begun[message.sender]
            weight = self.mixing * (1 + age) ** -self.ageing * given.weights[message.sender]
            model = model + weight * message.parts[0].astype(np.float64)
            version += 1
            begun[message.sender] = version
            yield Send(message.sender, (model.astype(self.dtype),))
            yield Report(model)
