"""D-PSGD: every node steps, and averages with its neighbours, all of them in every round.

Lian et al., 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?".

Algorithm: x_i ← x_i − η·∇f_i(x_i), ``local_steps`` times; then x_i ← Σ_j W_ij·x_j over neighbours, W by Metropolis.
``one_peer``: in round k node i sends to i + 2^(k mod ⌈log₂ n⌉) alone, hears of i − 2^(k mod ⌈log₂ n⌉), and takes the
mean of both (Ying et al., 2021, "Exponential Graph is Provably Efficient for Decentralized Deep Training").
Cost of a round: a model to each neighbour (to one) from every node, of 32·dim bits, and a round number.
Limits: everybody trains and sends in every round; models stay apart where data differ. A neighbour that stops for ever
holds the round up for ``patience``, and its model is left out from then on.
"""

from __future__ import annotations

import numpy as np

from paceline import technique
from paceline.families.training.api.objective import (
    Array,
    Given,
    Gradient,
    Now,
    Receive,
    Report,
    Run,
    Send,
    Sizes,
    UnsupportedError,
)


@technique(
    name="gossip-descent",
    family="training",
    implements=("objective",),
    summary="all nodes step, and average with their neighbours in every round",
    properties={
        "server": False,
        "all_report": True,
        "equals": {
            "plain": "gossip-descent",
            "arguments": {"rate": 0.5, "local_steps": 2, "minibatch": 0, "single": False, "one_peer": False},
            "rate": 0.5,
            "steps": 2,
        },
    },
)
class GossipDescent:
    """Step and average."""

    def __init__(
        self,
        *,
        rate: float = 0.5,
        local_steps: int = 5,
        minibatch: int = 0,
        patience: float = 100.0,
        one_peer: bool = False,
        single: bool = True,
    ) -> None:
        self.rate, self.local_steps, self.minibatch, self.patience = rate, local_steps, minibatch, patience
        self.one_peer, self.dtype = one_peer, np.float32 if single else np.float64

    def sizes(self, given: Given) -> Sizes:
        """Return the size of a model with its round."""
        if self.one_peer and len(given.neighbours) < given.num_nodes - 1:
            raise UnsupportedError("peers are of all nodes: it needs a complete graph")
        return Sizes(clients=(given.dim * 8 * np.dtype(self.dtype).itemsize + 32,))

    def run(self, given: Given) -> Run:
        """Be one node."""
        own, number, lost = given.start.copy(), 0, set[int]()
        early: dict[tuple[int, int], Array] = {}
        while True:
            for _ in range(self.local_steps):
                own = own - self.rate / given.smoothness * (yield Gradient(own, self.minibatch))
            ahead, behind = self._partners(given, number)
            for other in ahead:
                yield Send(other, (own.astype(self.dtype), np.array([number], dtype=np.int32)))
            until_s = (yield Now()) + self.patience
            while missing := [o for o in behind if o not in lost and (o, number) not in early]:
                message = yield Receive(until_s=until_s)
                if message is None:
                    lost.update(missing)
                    break
                early[message.sender, int(message.parts[1][0])] = message.parts[0].astype(np.float64)
            kept = 0.5 if self.one_peer else given.mixing[given.me]
            mixed = kept * own
            for other in behind:
                weight = 0.5 if self.one_peer else given.mixing[other]
                mixed = mixed + weight * early.pop((other, number), own)
            own, number = mixed, number + 1
            yield Report(own)

    def _partners(self, given: Given, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return to whom a node sends in a round, and of whom it hears."""
        if not self.one_peer:
            return given.neighbours, given.neighbours
        nodes = sorted((given.me, *given.neighbours))
        hop = 2 ** (number % max(1, (len(nodes) - 1).bit_length()))
        place = nodes.index(given.me)
        return (nodes[(place + hop) % len(nodes)],), (nodes[(place - hop) % len(nodes)],)
