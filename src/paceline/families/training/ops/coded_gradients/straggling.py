"""How long workers take: slow in bursts, drawn from a seed, in virtual time. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

JITTER = 0.05
"""Relative deviation of a round's time."""


class Straggling:
    """States of workers, round by round: a chain of two states for each (Gilbert, 1960; Elliott, 1963).

    Args:
        params: Of the point.
        seed: Of all states and times.
    """

    def __init__(self, params: Mapping[str, Any], seed: int) -> None:
        self._whole_s, self._round_s = float(params["whole_gradient_time"]), float(params["round_time"])
        self._slowdown = float(params["slowdown"])
        self._begin, self._end = float(params["slow_begin"]), float(params["slow_end"])
        self._workers, self._seed = int(params["workers"]), seed
        usual = self._begin / (self._begin + self._end) if self._begin else 0.0
        rng = np.random.default_rng([seed, 0])
        self._states = [rng.random(self._workers) < usual]
        """Of each round, (workers,): who is slow. The first is drawn from what holds in the long run."""
        self._jitters = [np.exp(JITTER * rng.standard_normal(self._workers))]

    def duration_s(self, worker: int, number: int, load: float) -> float:
        """Return how long a worker takes in a round for a share of all data."""
        while len(self._states) <= number:
            # A generator of each round: what is asked of one cannot move another.
            rng = np.random.default_rng([self._seed, len(self._states)])
            drawn, slow = rng.random(self._workers), self._states[-1]
            self._states.append(np.where(slow, drawn >= self._end, drawn < self._begin))
            self._jitters.append(np.exp(JITTER * rng.standard_normal(self._workers)))
        usual_s = (self._round_s + self._whole_s * load) * float(self._jitters[number][worker])
        return usual_s * (self._slowdown if self._states[number][worker] else 1.0)
