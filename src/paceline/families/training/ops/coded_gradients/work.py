"""What workers compute: least squares on drawn samples, cut into chunks of any share. Free of torch.

Every job has targets of its own, as steps have minibatches: whole gradients do not vanish where models have arrived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paceline.families.training.api.coding import Array, Task


class Work:
    """Samples, and models that take turns.

    Args:
        params: Of the point.
        seed: Of the samples.
    """

    def __init__(self, params: Mapping[str, Any], seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        count, dim = int(params["data_samples"]), int(params["model_dim"])
        self.inputs: Array = rng.standard_normal((count, dim))
        self._usual: Array = self.inputs @ rng.standard_normal(dim)
        self._seed = seed
        self.rate = 0.5 / float(np.linalg.eigvalsh(self.inputs.T @ self.inputs / count)[-1])

    def off(self, job: int, weights: Array) -> Array:
        """Return how far predictions are from a job's targets, (samples,)."""
        noise = np.random.default_rng([self._seed, 2, job]).standard_normal(len(self._usual))
        return self.inputs @ weights - self._usual - noise

    def gradients(self, job: int, weights: Array) -> Array:
        """Return the gradient of each sample's share of the mean loss of a job, (samples, dim)."""
        off = self.off(job, weights)
        return self.inputs * off[:, None] / len(off)


def bounds_of(shares: Sequence[float]) -> Array:
    """Return where chunks end along all data, (chunks + 1,), from 0 to 1."""
    return np.concatenate([[0.0], np.cumsum(shares)])


class Computed:
    """Chunks' gradients at some weights: integrals along the data, so that a chunk may cut a sample in two."""

    def __init__(self, per_sample: Array, bounds: Array) -> None:
        sums = np.concatenate([np.zeros((1, per_sample.shape[1])), np.cumsum(per_sample, axis=0)])
        places = np.clip(bounds, 0.0, 1.0) * len(per_sample)
        whole = np.minimum(places.astype(int), len(per_sample) - 1)
        ends = sums[whole] + (places - whole)[:, None] * per_sample[whole]
        self._chunks: Array = np.diff(ends, axis=0)

    def result(self, task: Task) -> Array:
        """Return what a worker sends for a task, (dim,)."""
        found: Array = np.asarray(task.coefficients) @ self._chunks[list(task.chunks)]
        return found
