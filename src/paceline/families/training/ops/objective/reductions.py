"""Plain algorithms to which techniques reduce, run here by whoever judges: no messages, no nodes. Free of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count as counting
from itertools import islice
from typing import Any

import numpy as np

from paceline.families.training.api.objective import Array
from paceline.families.training.core.planning.graphs import mixing
from paceline.families.training.ops.objective.problems import Problem

DESCENT, EXTRAGRADIENT, AVERAGING, GOSSIP = (
    "gradient-descent",
    "extragradient",
    "federated-averaging",
    "gossip-descent",
)


def _descent(problem: Problem, rate: float, steps: int, graph: str) -> Any:
    """Yield x ← x − η·∇F(x)."""
    at = np.zeros(problem.dim)
    for _ in counting():
        at = at - rate * problem.mean_gradient(at)
        yield at


def _extragradient(problem: Problem, rate: float, steps: int, graph: str) -> Any:
    """Yield z ← z − γ·F(z − γ·F(z))."""
    at = np.zeros(problem.dim)
    for _ in counting():
        at = at - rate * problem.mean_gradient(at - rate * problem.mean_gradient(at))
        yield at


def _averaging(problem: Problem, rate: float, steps: int, graph: str) -> Any:
    """Yield the mean of all nodes' models after some local steps each."""
    at = np.zeros(problem.dim)
    for _ in counting():
        ends = []
        for node in range(problem.count):
            own = at
            for _ in range(steps):
                own = own - rate * problem.gradient(node, own)
            ends.append(own)
        at = np.mean(ends, axis=0)
        yield at


def _gossip(problem: Problem, rate: float, steps: int, graph: str) -> Any:
    """Yield the nodes' mean model under X ← W·(X − η·∇f(X))."""
    weights = mixing(graph, problem.count)
    models = np.zeros((problem.count, problem.dim))
    for _ in counting():
        for _ in range(steps):
            models = models - rate * np.array([problem.gradient(n, m) for n, m in enumerate(models)])
        models = weights @ models
        yield models.mean(axis=0)


PLAIN: Mapping[str, Callable[[Problem, float, int, str], Any]] = {
    DESCENT: _descent,
    EXTRAGRADIENT: _extragradient,
    AVERAGING: _averaging,
    GOSSIP: _gossip,
}


def iterates(name: str, problem: Problem, rate: float, steps: int, graph: str, rounds: int) -> list[Array]:
    """Return the first iterates of a plain algorithm.

    Args:
        name: Of ``PLAIN``.
        problem: What is optimised.
        rate: Step size.
        steps: Local steps of a round.
        graph: Who are neighbours.
        rounds: How many iterates.
    """
    return list(islice(PLAIN[name](problem, rate, steps, graph), rounds))
