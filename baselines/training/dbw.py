"""DBW: the number of gradients to wait for is chosen anew in every step, by gain over time.

Xu, Neglia & Sebastianelli, 2020, "Dynamic Backup Workers for Parallel Machine Learning" (arXiv:2004.14696).

Algorithm: at step t the server waits for the k that maximises G(k)/T(k).
1. G(k) = (η − Lη²/2)·‖∇F‖² − Lη²/2·V/k, the decrease in loss to be expected of a step on the mean of k gradients. V is
   the variance between gradients of the last ``window`` steps, ‖∇F‖² what their means' norms leave above V/k, and L
   the curvature along the steps so far, by gradients at both of their ends.
2. T(k): the mean time until the k-th gradient in the last steps; what was not seen in them is extended from what was.
   Means are made to grow with k.
3. Where no k has a gain, or losses of a window grew by more than ``tolerance``, one more gradient than before is
   waited for.
Cost of a step: as of ``backup-workers``, which it is with another k in every step.
Limits: the estimates are of the last steps; a slowdown that begins is seen a step or two late.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from paceline.baselines.training.backup_workers import BackupWorkers

from paceline import technique
from paceline.families.training.api.objective import Given


@technique(
    name="dbw",
    family="training",
    implements=("objective",),
    summary="waits for as many gradients as promise the most decrease in loss a second",
    paper="dbw",
    properties={
        "equals": {
            "plain": "gradient-descent",
            "arguments": {"minibatch": 0, "rate": 0.5, "single": False, "always_all": True},
            "rate": 0.5,
        }
    },
    fidelity={
        "source": {
            "read": "paper",
            "paper": "abstract of arXiv:2004.14696 only: its text could not be had; gain, time and the rule for "
            "growing losses are from memory",
            "code": "none by the authors was found",
        },
        "deviations": (
            "L is estimated from gradients along all steps so far; the paper estimates it from losses, from memory.",
            "Losses are compared as means of windows, since minibatches are small; the paper compares two steps.",
            "Times are means by k alone; the paper keeps them by the k of the step before as well.",
            "Times that were not seen are extended by the mean distance of those that were; the paper explores.",
        ),
        "constants": {
            "rate": {"here": 0.5, "authors": "by experiment; in units of 1/L here"},
            "minibatch": {"here": 8, "authors": "16 to 500, by experiment"},
            "window": {"here": 5, "authors": "5 steps, from memory"},
            "tolerance": {"here": 1.01, "authors": "1.01, from memory"},
            "single": {"here": True, "authors": "single precision is usual"},
        },
        "checked_by": (
            "tests/unit/test_objective_techniques.py::test_dbw_waits_for_few_when_noise_is_small",
            "tests/unit/test_objective_techniques.py::test_growing_times_are_the_isotonic_means",
        ),
    },
)
class DynamicBackupWorkers(BackupWorkers):  # type: ignore[misc]  # mypy reads baselines under another name
    """Choose k by estimates of gain and time."""

    def __init__(
        self,
        always_all: bool = False,
        *,
        rate: float = 0.5,
        minibatch: int = 8,
        window: int = 5,
        tolerance: float = 1.01,
        single: bool = True,
    ) -> None:
        super().__init__(rate=rate, minibatch=minibatch, single=single)
        self.always_all, self.tolerance = always_all, tolerance
        self.variances: deque[float] = deque(maxlen=window)
        self.norms: deque[float] = deque(maxlen=window)
        self.losses: deque[float] = deque(maxlen=2 * window)
        self.times: dict[int, deque[float]] = {}
        self.window, self.last = window, 0
        self.bent, self.moved, self.before, self.step = 0.0, 0.0, 0.0, np.zeros(0)

    def choose(self, given: Given, number: int) -> int:
        """Return the k of most gain a second; all until gradients were seen."""
        count = len(given.neighbours)
        if self.always_all or not self.variances:
            self.last = count
            return count
        rate = self.rate / given.smoothness
        variance, norm = float(np.mean(self.variances)), float(np.mean(self.norms))
        ks = np.arange(1, count + 1)
        gains = expected_gain(norm, variance, rate, self.curvature(given), ks)
        speeds = gains / growing_times(self.times, count)
        chosen = int(ks[np.argmax(speeds)])
        if gains.max() <= 0.0 or self._grew():
            chosen = min(count, max(chosen, self.last + 1))
        self.last = chosen
        return chosen

    def curvature(self, given: Given) -> float:
        """Return L as it is along the steps that were taken; the problem's bound before there are any."""
        if self.moved == 0.0:
            return given.smoothness
        return float(np.clip(self.bent / self.moved, given.convexity, given.smoothness))

    def _grew(self) -> bool:
        before, now = (
            np.array_split(np.array(self.losses), 2) if len(self.losses) == 2 * self.window else ([1], [0])
        )
        return float(np.mean(now)) > self.tolerance * float(np.mean(before))

    def arrived(self, place: int, after_s: float) -> None:
        """Keep when the k-th gradient came."""
        self.times.setdefault(place, deque(maxlen=self.window)).append(after_s)

    def stepped(self, given: Given, gradients: np.ndarray, loss: float, model: np.ndarray) -> None:
        """Estimate the variance of one gradient, and the norm of the expected one."""
        self.losses.append(loss)
        mean = gradients.mean(axis=0)
        if len(gradients) > 1:
            self.variances.append(float(((gradients - mean) ** 2).sum() / (len(gradients) - 1)))
        # ‖mean‖² is V/k too large in expectation
        noise = float(np.mean(self.variances)) / len(gradients) if self.variances else 0.0
        norm = float(mean @ mean) - noise
        rate = self.rate / given.smoothness
        if len(self.step):
            # what the gradient changed along the step; the step's own noise is not in this one's gradient
            self.bent += float(mean @ self.step) + rate * self.before
            self.moved += float(self.step @ self.step)
        self.step, self.before = -rate * mean, norm
        self.norms.append(max(0.0, norm))


def expected_gain(norm: float, variance: float, rate: float, smoothness: float, ks: np.ndarray) -> np.ndarray:
    """Return the decrease in loss to be expected of a step on the mean of k gradients, for each k.

    Args:
        norm: ‖∇F‖².
        variance: Of one gradient, summed over numbers.
        rate: η.
        smoothness: L.
        ks: Numbers of gradients.
    """
    half = smoothness * rate**2 / 2
    return np.asarray((rate - half) * norm - half * variance / ks)


def growing_times(times: dict[int, deque[float]], count: int) -> np.ndarray:
    """Return the time until the k-th gradient for k = 1 to ``count``, from what was seen: means that never fall.

    Means are pooled where they would fall (isotonic least squares); places that were never reached follow with the mean
    distance of those that were.
    """
    seen = sorted(times)
    blocks: list[list[float]] = []
    for place in seen:
        blocks.append([float(np.mean(times[place])), float(len(times[place])), 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, weight, places = blocks.pop()
            whole = blocks[-1][1] + weight
            blocks[-1] = [
                (blocks[-1][0] * blocks[-1][1] + mean * weight) / whole,
                whole,
                blocks[-1][2] + places,
            ]
    pooled = [mean for mean, _, places in blocks for _ in range(int(places))]
    steps = (pooled[-1] - pooled[0]) / max(1, len(pooled) - 1)
    return np.array([*pooled, *(pooled[-1] + steps * n for n in range(1, count - len(seen) + 1))])
