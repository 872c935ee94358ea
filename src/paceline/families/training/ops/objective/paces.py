"""How long nodes compute, and how long messages travel: drawn from a seed, in virtual time. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

ALIKE, SPREAD, HEAVY, CHANGING = "alike", "spread", "heavy-tailed", "changing"
PACES = (ALIKE, SPREAD, HEAVY, CHANGING)
JITTER = 0.05
"""Relative deviation of times of nodes that are not alike."""
TAIL = 1.5
"""Index of the Pareto law of heavy tails: a finite mean, and no variance."""
PHASES = 24
"""Of a run with changing slowdowns; in every second one most nodes are slow at times."""
SLOWDOWN = 8.0
VALUE_SHARE = 0.5
"""Time of a value, of that of a gradient."""


class Paces:
    """Durations of computations.

    Args:
        params: Of the point: ``pace``, ``spread``, ``gradient_time``, ``horizon``.
        count: Nodes with data.
        seed: Of speeds and of every duration.
    """

    def __init__(self, params: Mapping[str, Any], count: int, seed: int) -> None:
        self.kind, self.base_s = str(params["pace"]), float(params["gradient_time"])
        self.phase_s = float(params["horizon"]) / PHASES
        rng = np.random.default_rng([seed, count])
        self.speeds = np.ones(count)
        if self.kind == SPREAD:
            self.speeds = rng.permutation(np.geomspace(1.0, float(params["spread"]), count))
        self._rngs = [np.random.default_rng([seed, count, node]) for node in range(count)]

    def duration_s(self, node: int, begin_s: float, *, value: bool) -> float:
        """Draw how long a node takes for its next gradient or value."""
        rng, usual_s = self._rngs[node], self.base_s * float(self.speeds[node])
        if value:
            usual_s *= VALUE_SHARE
        if self.kind == ALIKE:
            return usual_s
        jitter = float(np.exp(JITTER * rng.standard_normal()))
        if self.kind == HEAVY:
            return usual_s * jitter * (0.5 + 0.5 * float(rng.pareto(TAIL)))
        if self.kind == CHANGING:
            slow = int(begin_s / self.phase_s) % 2 == 1 and rng.random() < 0.5
            return usual_s * jitter * (SLOWDOWN if slow else 1.0)
        return usual_s * jitter


def travel_s(params: Mapping[str, Any], bits: int) -> tuple[float, float]:
    """Return how long a message keeps its sender's link busy, and how long it travels afterwards, in seconds."""
    return bits / float(params["node_rate"]), float(params["node_latency"])
