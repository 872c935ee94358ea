"""Federated averaging with samples: in each round a server lets some clients train, and averages their models.

McMahan et al., 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", algorithm 1.

Algorithm: nodes are ordered by a hash of round and node, alike everywhere. In round k the server sends x to the first
``sample`` of them; each takes ``local_steps`` steps x_i ← x_i − η·∇f_i(x_i), and sends x_i back; x is their mean. The
server is the node with the lowest number, is trusted to be there, and trains when it is sampled.
Cost of a round: a model down and a model up for each client of the sample, of 32·dim bits each.
Limits: where the server is gone, or a client of a sample, everybody waits for ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from paceline import technique
from paceline.families.training.api.objective import (
    Array,
    Given,
    Gradient,
    Receive,
    Report,
    Run,
    Send,
    Sizes,
    UnsupportedError,
)


def order(number: int, nodes: Sequence[int]) -> list[int]:
    """Return nodes in the order of a round, by a hash: the same everywhere."""
    return sorted(nodes, key=lambda n: hashlib.sha256(f"{number}/{n}".encode()).digest())


@technique(
    name="sampled-averaging",
    family="training",
    implements=("objective",),
    summary="one of the nodes is the server: a sample trains in every round, and it takes the mean",
    properties={
        "server": False,
        "equals": {
            "plain": "federated-averaging",
            "arguments": {"rate": 0.5, "local_steps": 3, "minibatch": 0, "single": False, "sample": 0},
            "rate": 0.5,
            "steps": 3,
        },
    },
)
class SampledAveraging:
    """Sample, train, average."""

    def __init__(
        self,
        *,
        sample: int = 4,
        rate: float = 0.5,
        local_steps: int = 5,
        minibatch: int = 0,
        single: bool = True,
    ) -> None:
        self.sample, self.rate, self.local_steps, self.minibatch = sample, rate, local_steps, minibatch
        """``sample``: clients of a round; 0 takes all."""
        self.dtype = np.float32 if single else np.float64

    def sizes(self, given: Given) -> Sizes:
        """Return the size of a model, both ways."""
        if len(given.neighbours) < given.num_nodes - 1:
            raise UnsupportedError("one node serves all: it needs a complete graph")
        return Sizes(clients=(given.dim * 8 * np.dtype(self.dtype).itemsize,))

    def run(self, given: Given) -> Run:
        """Serve, or learn."""
        nodes = sorted((given.me, *given.neighbours))
        return self._serve(given, nodes) if given.me == nodes[0] else self._learn(given, nodes[0])

    def _learn(self, given: Given, server: int) -> Run:
        while True:
            message = yield Receive()
            own = yield from self._trained(given, message.parts[0].astype(np.float64))
            yield Send(server, (own.astype(self.dtype),))

    def _trained(self, given: Given, own: Array) -> Run:
        for _ in range(self.local_steps):
            own = own - self.rate / given.smoothness * (yield Gradient(own, self.minibatch))
        return own

    def _serve(self, given: Given, nodes: Sequence[int]) -> Run:
        model, number = given.start.copy(), 0
        while True:
            sample = order(number, nodes)[: self.sample or len(nodes)]
            for client in sample:
                if client != given.me:
                    yield Send(client, (model.astype(self.dtype),))
            told: dict[int, Array] = {}
            if given.me in sample:
                told[given.me] = yield from self._trained(given, model)
            while len(told) < len(sample):
                message = yield Receive()
                told[message.sender] = message.parts[0].astype(np.float64)
            # in the clients' order: sums of floating-point numbers depend on it
            model, number = np.mean([told[client] for client in sorted(told)], axis=0), number + 1
            yield Report(model)
