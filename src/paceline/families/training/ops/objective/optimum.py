"""The optimum, worked out in float64 by whoever judges: a linear system, or Newton's method. Free of torch.

It shares no formula with ``problems`` but the data: a wrong gradient there shows as a gradient that is not zero here.
"""

from __future__ import annotations

import numpy as np

from paceline.families.training.api.objective import Array
from paceline.families.training.ops.objective.problems import (
    CLASSES,
    GAME,
    LOGISTIC,
    NUM_CLASSES,
    QUADRATICS,
    Problem,
)

MAX_STEPS = 60
SMALL = 1e-10
"""Norm of the gradient at which Newton's method ends."""


def optimum(problem: Problem) -> Array | None:
    """Return the minimiser, or the saddle point, of the whole objective, [dim]; None where nobody knows it.

    Raises:
        ValueError: Newton's method did not converge.
    """
    if problem.kind == QUADRATICS:
        hessians, centres = problem.data["hessians"], problem.data["centres"]
        pulled = np.einsum("nij,nj->i", hessians, centres)
        return np.asarray(np.linalg.solve(hessians.sum(axis=0), pulled))
    if problem.kind == GAME:
        return _saddle(problem)
    if problem.kind in (LOGISTIC, CLASSES):
        return _newton(problem)
    return None


def _saddle(problem: Problem) -> Array:
    matrix, ridge = problem.data["matrices"].mean(axis=0), problem.data["ridge"]
    half = len(matrix)
    eye = ridge * np.eye(half)
    system = np.block([[eye, matrix], [-matrix.T, eye]])
    return np.asarray(np.linalg.solve(system, -problem.data["pulls"].mean(axis=0)))


def _newton(problem: Problem) -> Array:
    at = np.zeros(problem.dim)
    for _ in range(MAX_STEPS):
        gradient, hessian = _slopes(problem, at)
        if np.linalg.norm(gradient) < SMALL:
            return at
        step = np.linalg.solve(hessian, gradient)
        # damped where the quadratic model is far off: the decrement bounds what a full step may do
        decrement = float(np.sqrt(gradient @ step))
        at = at - step / (1.0 + decrement) if decrement > 0.25 else at - step
    raise ValueError("Newton's method did not converge")


def _slopes(problem: Problem, at: Array) -> tuple[Array, Array]:
    """Return gradient and Hessian over all samples of all nodes as one data set."""
    features = problem.data["features"].reshape(-1, problem.data["features"].shape[-1])
    labels = problem.data["labels"].reshape(-1)
    ridge, count = problem.data["ridge"], len(labels)
    if problem.kind == LOGISTIC:
        chance = 1.0 / (1.0 + np.exp(-(features @ at)))  # of a label of +1
        gradient = features.T @ (chance - (labels > 0)) / count + ridge * at
        hessian = (features * (chance * (1.0 - chance))[:, None]).T @ features / count
        return gradient, hessian + ridge * np.eye(problem.dim)
    weights = at.reshape(-1, NUM_CLASSES)
    scores = np.exp(features @ weights)
    chances = scores / scores.sum(axis=1, keepdims=True)
    off = chances - np.eye(NUM_CLASSES)[labels]
    gradient = (features.T @ off / count).ravel() + ridge * at
    hessian = np.zeros((problem.dim, problem.dim))
    for a in range(NUM_CLASSES):
        for b in range(NUM_CLASSES):
            share = chances[:, a] * ((a == b) - chances[:, b])
            hessian[a::NUM_CLASSES, b::NUM_CLASSES] = (features * share[:, None]).T @ features / count
    return gradient, hessian + ridge * np.eye(problem.dim)
