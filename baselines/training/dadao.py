"""DADAO: gradients and pairwise exchanges at independent Poisson instants, both accelerated.

Nabli & Oyallon, 2023, "DADAO: Decoupled Accelerated Decentralized Asynchronous Optimization" (arXiv:2208.00779).

Algorithm: node i keeps x, y, z and a partner of each (X, Y, Z here), which flow into each other between events:
    x' = η(X − x),  X' = η(x − X),  y' = α(Y − y),  Y' = −θ(ν·X + y + z),  z' = α(Z − z),  Z' = a(z − Z).
Its own clock rings once a unit of time on average; with d = ∇f_i(x) − ν·x − Y then
    x ← x − γ·d,  X ← X − Γ·d,  Y ← Y + (δ + 1)·d.
The clock of an edge (i, j) rings √(2·χ₁·χ₂) / edges times in that unit; with p = (y + z)_i − (y + z)_j then
    z_i ← z_i − p/2,  Z_i ← Z_i − B·p,  and the same with −p at j.
χ₁ is the number of edges over the least positive eigenvalue of the graph's Laplacian, χ₂ half of it times the largest
resistance of an edge. Constants: ν = μ/2, r = √(ν/L): α = r/4, a = η = r/8, θ = 1/(2r), γ = 1/(4L), Γ = 1/(4L·r),
δ = r/4, B = 2·χ₁ / (√(2·χ₁·χ₂)·r).
Both ends of an edge draw its instants from a seed that all share. A node handles its events in their order, as fast as
it can: what happens is what the clocks say, and the unit of their time is whatever the slowest chain of events takes.
Cost of an exchange: a vector of 32·dim bits each way, and its number.
Limits: a node that computes lets its partners wait; the paper's computes and exchanges at once.
"""

from __future__ import annotations

import heapq
import math

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

X, X_PARTNER, Y, Y_PARTNER, Z, Z_PARTNER = range(6)
TERMS = 14
"""Of the series of an exponential whose argument has a norm of a half at most: the rest is below 1e-16."""


def exponential(matrix: Array) -> Array:
    """Return e to the power of a square matrix: its series for a small part of it, squared again and again."""
    halvings = max(0, math.ceil(math.log2(max(float(np.abs(matrix).sum(axis=1).max()), 1e-300))) + 1)
    small, term = matrix / 2.0**halvings, np.eye(len(matrix))
    found = term.copy()
    for power in range(1, TERMS):
        term = term @ small / power
        found += term
    for _ in range(halvings):
        found = found @ found
    return found


@technique(
    name="dadao",
    family="training",
    implements=("objective",),
    summary="accelerated gradients and accelerated pairwise gossip, at independent Poisson instants",
    paper="dadao",
    properties={"server": False, "all_report": True},
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract of arXiv:2208.00779",
            "code": "github.com/AdelNabli/DADAO: optimizers.py, run_optimizers.py, utils.py",
        },
        "deviations": (
            "Nodes handle their events in the order of the Poisson clocks, as fast as they can; the authors play all "
            "events in one loop, and neither waits for the other.",
            "What is exchanged is rounded to single precision, by both ends alike; the authors' is double.",
            "All edges have the same rate; the paper also works out rates that differ.",
        ),
        "constants": {
            "single": {
                "here": True,
                "authors": "double precision",
                "official": False,
                "source": "github.com/AdelNabli/DADAO: optimizers.py",
                "differs": "what is exchanged is rounded to single precision",
            }
        },
        "checked_by": (
            "tests/unit/test_decentralised_acceleration.py::test_dadao_follows_its_equations_event_by_event",
            "tests/unit/test_decentralised_acceleration.py::test_the_exponential_of_a_matrix",
        ),
    },
)
class Dadao:
    """Flow between events, and jump at them."""

    def __init__(self, *, single: bool = True) -> None:
        self.dtype = np.float32 if single else np.float64

    def sizes(self, given: Given) -> Sizes:
        """Return the size of a vector with its number."""
        if given.convexity <= 0.0:
            raise UnsupportedError("its constants need an objective that is strongly convex")
        return Sizes(clients=(given.dim * 8 * np.dtype(self.dtype).itemsize + 32,))

    def run(self, given: Given) -> Run:
        """Be one node."""
        nu, smooth = given.convexity / 2, given.smoothness
        root = math.sqrt(nu / smooth)
        edges = given.facts["edges"]
        chi_1, chi_2 = edges / given.facts["laplacian_gap"], edges * given.facts["edge_resistance"] / 2
        exchanges = math.sqrt(2 * chi_1 * chi_2)
        flow = self.flow(nu, root)
        state = np.zeros((6, given.dim))
        state[X] = given.start
        clocks = {given.me: np.random.default_rng([given.own_seed, given.me])}
        for other in given.neighbours:
            ends = sorted((given.me, other))
            clocks[other] = np.random.default_rng([given.shared_seed, *ends])
        unit = {node: 1.0 if node == given.me else edges / exchanges for node in clocks}
        due = [(float(clock.exponential(unit[node])), node, 0) for node, clock in clocks.items()]
        heapq.heapify(due)
        early: dict[tuple[int, int], Array] = {}
        last = 0.0
        while True:
            instant, node, number = heapq.heappop(due)
            state = exponential(flow * (instant - last)) @ state
            last = instant
            heapq.heappush(due, (instant + float(clocks[node].exponential(unit[node])), node, number + 1))
            if node == given.me:
                own = state[X].copy()
                push = (yield Gradient(own)) - nu * own - state[Y_PARTNER]
                state[X] -= push / (4 * smooth)
                state[X_PARTNER] -= push / (4 * smooth * root)
                state[Y_PARTNER] += (root / 4 + 1) * push
                yield Report(state[X].copy())
                continue
            mine = (state[Y] + state[Z]).astype(self.dtype)
            yield Send(node, (mine, np.array([number], dtype=np.int32)))
            while (node, number) not in early:
                message = yield Receive()
                early[message.sender, int(message.parts[1][0])] = message.parts[0]
            apart = mine.astype(np.float64) - early.pop((node, number)).astype(np.float64)
            state[Z] -= apart / 2
            state[Z_PARTNER] -= 2 * chi_1 / (exchanges * root) * apart

    @staticmethod
    def flow(nu: float, root: float) -> Array:
        """Return the matrix of the flow between events, [6, 6].

        Args:
            nu: Half of the convexity.
            root: √(ν/L).
        """
        matrix = np.zeros((6, 6))
        for place, partner, rate in (
            (X, X_PARTNER, root / 8),
            (X_PARTNER, X, root / 8),
            (Y, Y_PARTNER, root / 4),
        ):
            matrix[place, place], matrix[place, partner] = -rate, rate
        for place, partner, rate in ((Z, Z_PARTNER, root / 4), (Z_PARTNER, Z, root / 8)):
            matrix[place, place], matrix[place, partner] = -rate, rate
        matrix[Y_PARTNER, [X_PARTNER, Y, Z]] = -nu / (2 * root), -1 / (2 * root), -1 / (2 * root)
        return matrix
