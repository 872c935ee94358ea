"""Times of the nearest known shape, scaled by the number of operations: the baseline of a learned predictor.

Algorithm: for an unknown product take the known shape of the least distance in log(m, n, k), of its products the one of
the least distance in the tile's logarithms, and its time, times the ratio of operations.

Cost: one pass over the known products for each prediction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline import technique
from paceline.families.kernels.api.problem import Problem

Floats = NDArray[np.float64]
SHAPE, TILE, FLOPS = slice(0, 3), slice(3, 6), 9
"""Columns of the features."""


@technique(
    name="nearest-shape",
    family="kernels",
    implements=("tile_choice",),
    summary="times of the nearest known shape, scaled by the number of operations",
)
class NearestShape:
    """N products, F features."""

    def __init__(self, problem: Problem) -> None:
        self.features_NF: Floats = np.empty((0, 0))
        self.times_N: Floats = np.empty(0)

    def fit(self, features_NF: Floats, times_N: Floats) -> None:
        """Keep the known products."""
        self.features_NF, self.times_N = features_NF, times_N

    def predict(self, features_NF: Floats) -> Floats:
        """Return times of unknown products."""
        return np.array([self._one(row) for row in features_NF])

    def _one(self, row: Floats) -> float:
        # In logarithms, so that twice as long and half as long are equally far.
        logs_NF = np.abs(np.log(self.features_NF[:, :6]) - np.log(row[:6]))
        distances = (logs_NF[:, TILE].sum(axis=1), logs_NF[:, SHAPE].sum(axis=1))
        # ``lexsort`` sorts by its last key first: the shape decides, the tile among equal shapes.
        nearest = int(np.lexsort(distances)[0])
        return float(self.times_N[nearest] * row[FLOPS] / self.features_NF[nearest, FLOPS])
