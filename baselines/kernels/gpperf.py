"""A random forest that predicts a matrix product's time from its shape and tile, and so chooses the tile.

Liu and Halim, "Understanding GEMM Performance and Energy on NVIDIA Ada Lovelace: A Machine Learning-Based Analytical
Approach", arXiv 2411.16954, 2024. L. Breiman, "Random Forests", Machine Learning 45, 2001.

Algorithm: a product of F operations takes F · f(shape, tile). Each tree of the forest is grown on a bootstrap sample of
the known products; every node splits on the feature and threshold, out of a random half of the features, that leave the
least squared error of log f. A prediction is the mean over the trees' leaves, times F. Features are the given ones,
operations of one step, and for each side how many tiles it takes, how long the last one is, and what share of the tiles
it fills.

Cost: T · n log n · features for n known products; a prediction walks T trees.
Limits: a forest interpolates; what it never saw looks to it like the nearest it saw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline import technique
from paceline.families.kernels.api.problem import Problem

Floats = NDArray[np.float64]
SHAPE, TILE = slice(0, 3), slice(3, 6)
STEPS, FLOPS = 7, 9
"""Columns of the features: sides, tiles, products of tiles, and operations."""


@dataclass(slots=True)
class _Node:
    value: float
    feature: int = -1
    threshold: float = 0.0
    left: _Node | None = None
    right: _Node | None = None


@technique(
    name="gpperf",
    family="kernels",
    implements=("tile_choice",),
    summary="a random forest predicts times and chooses tiles",
    paper="gpperf",
    fidelity={
        "source": {
            "read": "code",
            "paper": "the abstract by the ledger, not read for this card",
            "code": "github.com/pavlyhalim/GPPerf: cutlass-analysis/cutlass_predictor.py",
        },
        "deviations": (
            "Runtime alone is predicted; the authors predict power, energy and rate with it.",
            (
                "The target is the time of an operation, so that trees need not learn that larger products take "
                "longer."
            ),
            (
                "Features are shape, tile and what follows from both; the authors add bytes, arithmetic intensity "
                "and layout."
            ),
            "Trees grow until a leaf has two products; the authors stop at a depth of six.",
            "The forest is written here; the authors use scikit-learn's.",
        ),
        "constants": {
            "trees": {
                "here": 30,
                "authors": "100, cutlass_predictor.py",
                "official": 100,
                "source": "github.com/pavlyhalim/GPPerf: cutlass-analysis/cutlass_predictor.py",
                "differs": "a third of the trees, whose time grows with the products that are known",
            },
            "min_leaf": {"here": 2, "authors": "scikit-learn's default, with depth 6, cutlass_predictor.py"},
        },
        "checked_by": (
            "tests/unit/test_kernel_techniques.py::test_the_forest_learns_what_it_is_shown",
            "tests/conformance/test_kernels_conformance.py::test_a_kernel_conforms",
        ),
    },
)
class Forest:
    """N products, F features."""

    def __init__(self, problem: Problem, *, trees: int = 30, min_leaf: int = 2) -> None:
        self.num_trees, self.min_leaf = trees, min_leaf
        # A fixed seed: what differs between two fits is then what was measured.
        self.rng = np.random.default_rng(0)
        self.trees: list[_Node] = []

    def fit(self, features_NF: Floats, times_N: Floats) -> None:
        """Grow the forest on known products."""
        # Squared errors of logarithms are relative errors, so that short products weigh as much as long ones.
        logs_N = np.log(times_N / features_NF[:, FLOPS])
        log_features_NF = self._inputs(features_NF)
        count = len(times_N)
        for _ in range(self.num_trees):
            drawn = self.rng.integers(0, count, count)
            self.trees.append(self._grow(log_features_NF[drawn], logs_N[drawn]))

    def predict(self, features_NF: Floats) -> Floats:
        """Return times of unknown products."""
        rows = self._inputs(features_NF)
        logs = [[self._walk(tree, row) for tree in self.trees] for row in rows]
        times_N: Floats = np.exp(np.mean(logs, axis=1)) * features_NF[:, FLOPS]
        return times_N

    @staticmethod
    def _inputs(features_NF: Floats) -> Floats:
        """Return logarithms of the features, of the operations of one step, and of what tiles make of each side."""
        logs_NF = np.log(features_NF)
        sides, tiles = features_NF[:, SHAPE], features_NF[:, TILE]
        counts = np.ceil(sides / tiles)
        last = sides - (counts - 1) * tiles
        inputs_NF: Floats = np.column_stack(
            [
                logs_NF,
                logs_NF[:, FLOPS] - logs_NF[:, STEPS],
                np.log(counts),
                np.log(last),
                np.log(sides / (counts * tiles)),
            ]
        )
        return inputs_NF

    def _grow(self, x_NF: Floats, y_N: Floats) -> _Node:
        node = _Node(float(y_N.mean()))
        if len(y_N) < 2 * self.min_leaf or np.ptp(y_N) == 0:
            return node
        # A random half at each node: trees that split on different features err differently (Breiman, 2001).
        features = self.rng.permutation(x_NF.shape[1])[: max(x_NF.shape[1] // 2, 1)]
        best = min((self._split(x_NF[:, f], y_N, int(f)) for f in features), key=lambda s: s[0])
        if not np.isfinite(best[0]):
            return node
        _, node.feature, node.threshold = best
        below = x_NF[:, node.feature] <= node.threshold
        # The middle of two neighbouring floats may round to the upper one, and then splits nothing off.
        if below.all():
            return node
        node.left, node.right = self._grow(x_NF[below], y_N[below]), self._grow(x_NF[~below], y_N[~below])
        return node

    def _split(self, x_N: Floats, y_N: Floats, feature: int) -> tuple[float, int, float]:
        """Return the least squared error that a threshold on one feature leaves, the feature and the threshold."""
        order = np.argsort(x_N, kind="stable")
        x, y = x_N[order], y_N[order]
        left = np.arange(1, len(y))
        sums, squares = np.cumsum(y), np.cumsum(y * y)
        # Σ(y − mean)² = Σy² − (Σy)²/n on either side: one pass gives the error of every threshold.
        error = (squares[:-1] - sums[:-1] ** 2 / left) + (
            squares[-1] - squares[:-1] - (sums[-1] - sums[:-1]) ** 2 / (len(y) - left)
        )
        # Equal values cannot be told apart by any threshold.
        allowed = (x[1:] > x[:-1]) & (left >= self.min_leaf) & (len(y) - left >= self.min_leaf)
        if not allowed.any():
            return float("inf"), feature, 0.0
        at = int(np.argmin(np.where(allowed, error, np.inf)))
        return float(error[at]), feature, float((x[at] + x[at + 1]) / 2)

    @staticmethod
    def _walk(node: _Node, row: Floats) -> float:
        while node.left is not None and node.right is not None:
            node = node.left if row[node.feature] <= node.threshold else node.right
        return node.value
