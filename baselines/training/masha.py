"""MASHA1: extragradient with variance reduction, whose clients send compressed differences of operators.

Beznosikov, Richtárik, Diskin, Ryabinin & Gasnikov, 2021, "Distributed Methods with Compressed Communication for
Solving Variational Inequalities, with Theoretical Guarantees" (arXiv:2110.03313), the method for unbiased compressors.

Algorithm (w: a point whose whole operator F(w) everybody knows; C: Rand-k, unbiased):
1. z̄ = τ·z + (1 − τ)·w; z½ = z̄ − γ·F(w).
2. Client m sends C(F_m(z½) − F_m(w)); the server sends their mean, g (of ``both_ways``: C of it).
3. z ← z½ − γ·g; with probability 1 − τ everybody takes w ← z, and clients send F_m(w) whole.
All nodes hold z, z½ and w, and toss the same coin.
Cost of a step: 32·k bits up and 32·dim (or 32·k) bits down for each client, and, with probability 1 − τ, 32·dim bits
up and down. Which k numbers are kept follows from a seed that all nodes have, and is not sent.
Limits: the step is √(1 − τ) shorter than extragradient's; where operators differ much, compression's variance counts.
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


def kept(dim: int, share: float) -> int:
    """Return how many of ``dim`` numbers a compressor keeps."""
    return max(1, round(share * dim))


def spread_out(given: Given, step: int, sender: int, count: int) -> Array:
    """Return the places that Rand-k keeps of a sender's message in a step: the same on all nodes."""
    rng = np.random.default_rng([given.shared_seed, step, sender])
    return np.sort(rng.choice(given.dim, size=count, replace=False))


@technique(
    name="masha",
    family="training",
    implements=("objective",),
    summary="variance-reduced extragradient whose clients send Rand-k of operators' differences",
    paper="masha",
    properties={
        "games": True,
        "equals": {
            "plain": "extragradient",
            "arguments": {"keep": 1.0, "rate": 0.5, "single": False, "renewed": 1.0},
            "rate": 0.5,
        },
    },
    fidelity={
        "source": {
            "read": "paper",
            "paper": "abstract of arXiv:2110.03313 only: its text could not be had; the algorithm is from memory",
            "code": "none by the authors was found",
        },
        "deviations": (
            "Constraints are left out: the games here have none, so that proximal steps are plain ones.",
            "Kept places follow from a shared seed; the paper counts their bits by the compressor.",
        ),
        "constants": {
            "keep": {"here": 0.1, "authors": "Rand-k of 10 % among others, from memory"},
            "both_ways": {"here": False, "authors": "either, by the abstract"},
            "rate": {"here": 1.0, "authors": "γ ≤ √(1 − τ)/(2C), from memory; here a factor of √(1 − τ)/L"},
            "single": {"here": True, "authors": "single precision is usual"},
        },
        "checked_by": (
            "tests/unit/test_objective_techniques.py::test_kept_places_are_the_same_on_all_nodes_and_unbiased",
            "tests/unit/test_objective_techniques.py::test_reductions_are_equal_iterate_by_iterate",
        ),
    },
)
class Masha:
    """Send compressed differences."""

    def __init__(
        self,
        renewed: float | None = None,
        *,
        keep: float = 0.1,
        rate: float = 1.0,
        both_ways: bool = False,
        single: bool = True,
    ) -> None:
        self.both_ways = both_ways
        self.keep, self.rate, self.dtype = keep, rate, np.float32 if single else np.float64
        self.renewed = keep if renewed is None else renewed
        """1 − τ: how often w is renewed; as often as a number is kept, so that both cost the same."""

    def sizes(self, given: Given) -> Sizes:
        """Return the sizes of k numbers and of all."""
        width = 8 * np.dtype(self.dtype).itemsize
        both = (width * kept(given.dim, self.keep), width * given.dim)
        return Sizes(clients=both, server=both)

    def run(self, given: Given) -> Run:
        """Hold z and w like all others; add to the mean, or make it."""
        dim, count = given.dim, kept(given.dim, self.keep)
        coin = np.random.default_rng([given.shared_seed, 1])
        rate = self.rate * np.sqrt(self.renewed) / given.smoothness
        at, known = given.start.copy(), given.start.copy()
        own, whole = yield from self._whole(given, known)
        step = 0
        while True:
            middle = (1.0 - self.renewed) * at + self.renewed * known
            ahead = middle - rate * whole
            change = yield from self._change(given, ahead, own, step, count)
            # what everybody adds: Rand-k of the mean, scaled to be unbiased
            chosen = spread_out(given, step, SERVER, count) if self.both_ways else np.arange(dim)
            if given.me == SERVER:
                told = (change[chosen] * dim / len(chosen)).astype(self.dtype)
                for client in given.neighbours:
                    yield Send(client, (told,))
            else:
                told = (yield Receive()).parts[0]
            at = ahead.copy()
            at[chosen] -= rate * told.astype(np.float64)
            if given.me == SERVER:
                yield Report(at)
            if coin.random() < self.renewed:
                known = at.copy()
                own, whole = yield from self._whole(given, known)
            step += 1

    def _change(self, given: Given, ahead: Array, own: Array, step: int, count: int) -> Run:
        """Send C(F_m(z½) − F_m(w)); return the mean of them on the server."""
        if given.me != SERVER:
            chosen = spread_out(given, step, given.me, count)
            difference = (yield Gradient(ahead)) - own
            yield Send(SERVER, ((difference[chosen] * given.dim / count).astype(self.dtype),))
            return given.start
        told: dict[int, Array] = {}
        while len(told) < len(given.neighbours):
            message = yield Receive()
            told[message.sender] = message.parts[0].astype(np.float64)
        mean = np.zeros(given.dim)
        for client in given.neighbours:
            mean[spread_out(given, step, client, count)] += told[client] / len(given.neighbours)
        return mean

    def _whole(self, given: Given, at: Array) -> Run:
        """Return F_m at a point, and the mean F, which the server sends to all."""
        if given.me != SERVER:
            own = yield Gradient(at)
            yield Send(SERVER, (own.astype(self.dtype),))
            message = yield Receive()
            return own, message.parts[0].astype(np.float64)
        told: dict[int, Array] = {}
        while len(told) < len(given.neighbours):
            message = yield Receive()
            told[message.sender] = message.parts[0].astype(np.float64)
        mean = np.mean([told[c] for c in given.neighbours], axis=0)
        for client in given.neighbours:
            yield Send(client, (mean.astype(self.dtype),))
        return given.start, mean.astype(self.dtype).astype(np.float64)
