"""How far a model is from the best: functions that whoever judges evaluates in float64. Free of torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from paceline.families.training.api.objective import Array
from paceline.families.training.ops.objective.optimum import optimum
from paceline.families.training.ops.objective.problems import CLASSES, GAME, NONCONVEX, QUADRATICS, Problem

Distance = Callable[[Array], float]
FLAT = 1e-6
"""Norm of the drawn gradient at the optimum, over that at the start, above which the two do not belong together."""


def distance_of(problem: Problem) -> Distance:
    """Return what tells how far a model is from the best one.

    Of a convex objective it is F(x) − F(x*) over F(0) − F(x*); of a game ‖z − z*‖² over ‖z*‖²; of what is not convex
    ‖∇F(x)‖²; of a classifier the accuracy that the optimum has more on held-out samples, negative where it has less.

    Raises:
        ValueError: The gradient is not zero at the optimum: one of the two is wrong.
    """
    if problem.kind == NONCONVEX:
        return lambda at: float(np.sum(_pooled_slope(problem, at) ** 2))
    best = optimum(problem)
    assert best is not None
    start = np.zeros(problem.dim)
    slope = np.linalg.norm(problem.mean_gradient(best)) / np.linalg.norm(problem.mean_gradient(start))
    if slope > FLAT:
        raise ValueError(f"the gradient at the optimum is {slope:.3g} of that at the start")
    if problem.kind == CLASSES:
        most = problem.accuracy(best)
        return lambda at: most - problem.accuracy(at)
    if problem.kind == GAME:
        whole = float(best @ best)
        return lambda at: float(np.sum((at - best) ** 2)) / whole
    excess = (
        _quadratic_excess(problem, best) if problem.kind == QUADRATICS else _logistic_excess(problem, best)
    )
    whole = excess(start)
    return lambda at: excess(at) / whole


def _quadratic_excess(problem: Problem, best: Array) -> Distance:
    hessian = problem.data["hessians"].mean(axis=0)
    return lambda at: 0.5 * float((at - best) @ hessian @ (at - best))


def _pooled(problem: Problem) -> tuple[Array, Array]:
    """Return features and labels of all nodes as one data set, or the one that all of them have."""
    features, labels = problem.data["features"], problem.data["labels"]
    if (features == features[:1]).all():
        return features[0], labels[0]
    return features.reshape(-1, features.shape[-1]), labels.reshape(-1)


def _logistic_excess(problem: Problem, best: Array) -> Distance:
    features, labels = _pooled(problem)
    signed, ridge = features * labels[:, None], problem.data["ridge"]

    def loss(at: Array) -> float:
        return float(np.logaddexp(0.0, -(signed @ at)).mean() + 0.5 * ridge * at @ at)

    least = loss(best)
    return lambda at: loss(at) - least


def _pooled_slope(problem: Problem, at: Array) -> Array:
    features, labels = _pooled(problem)
    chance = 1.0 / (1.0 + np.exp(labels * (features @ at)))
    slope = -(features.T @ (labels * chance)) / len(labels)
    return np.asarray(slope + problem.data["ridge"] * 2.0 * at / (1.0 + at**2) ** 2)
