"""Objectives that are drawn from a seed: values, gradients and constants. Free of torch.

Every node with data has a part f_i; the objective is F = Σ p_i·f_i with equal p. What is not convex or no
minimisation says so. Nothing here knows an optimum (``optimum`` works it out by itself).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paceline.families.training.api.objective import Array

QUADRATICS, LOGISTIC, GAME, NONCONVEX, CLASSES = (
    "quadratics",
    "logistic",
    "bilinear-game",
    "nonconvex",
    "classes",
)
PROBLEMS = (QUADRATICS, LOGISTIC, GAME, NONCONVEX, CLASSES)
NUM_CLASSES = 4
HELD_OUT = 2000
"""Samples of the classifier that nobody trains on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is optimised."""

    kind: str
    dim: int
    count: int
    """Nodes with data."""
    samples: int
    smoothness: float
    convexity: float
    data: Mapping[str, Any]
    facts: Mapping[str, float] = field(default_factory=dict)

    def pick(self, rng: np.random.Generator, minibatch: int) -> Any:
        """Draw samples with replacement; everything where ``minibatch`` is 0."""
        return slice(None) if minibatch == 0 else rng.integers(0, self.samples, minibatch)

    def gradient(self, node: int, at: Array, rows: Any = slice(None)) -> Array:
        """Return the gradient of a node's part over some of its samples, [dim]."""
        return _GRADIENT[self.kind](self, node, at, rows)

    def value(self, node: int, at: Array, rows: Any = slice(None)) -> float:
        """Return a node's part at a point, over some of its samples."""
        return _VALUE[self.kind](self, node, at, rows)

    def each_gradient(self, node: int, at: Array) -> Array:
        """Return the gradients of all samples of a node, [samples, dim]."""
        assert self.kind in (LOGISTIC, NONCONVEX)
        features, labels = self.data["features"][node], self.data["labels"][node]
        outer = -labels * _sigmoid(-labels * (features @ at))
        return np.asarray(outer[:, None] * features + _regular(self, at)[None, :])

    def mean_gradient(self, at: Array) -> Array:
        """Return the gradient of the whole objective, [dim]."""
        return np.asarray(np.mean([self.gradient(n, at) for n in range(self.count)], axis=0))

    def accuracy(self, at: Array) -> float:
        """Return the share of held-out samples that a classifier gets right."""
        scores = self.data["held_features"] @ at.reshape(-1, NUM_CLASSES)
        return float(np.mean(np.argmax(scores, axis=1) == self.data["held_labels"]))


def draw(params: Mapping[str, Any], count: int, seed: int) -> Problem:
    """Draw a problem.

    Args:
        params: Of the point: ``problem``, ``dim``, ``samples``, ``condition``, ``heterogeneity``.
        count: Nodes with data.
        seed: Of everything.
    """
    rng = np.random.default_rng(seed)
    sizes = (int(params["dim"]), count, int(params["samples"]))
    return _DRAW[str(params["problem"])](
        rng, *sizes, float(params["condition"]), float(params["heterogeneity"])
    )


def _rotation(rng: np.random.Generator, dim: int) -> Array:
    q, r = np.linalg.qr(rng.standard_normal((dim, dim)))
    return np.asarray(q * np.sign(np.diag(r)))


def _quadratics(
    rng: np.random.Generator, dim: int, count: int, samples: int, condition: float, apart: float
) -> Problem:
    """½(x − c_i)ᵀH_i(x − c_i); spectra from 1/condition to 1, centres around a common one by ``apart``."""
    spectrum = np.geomspace(1.0 / condition, 1.0, dim)
    common = rng.standard_normal(dim)
    shared = _rotation(rng, dim)
    hessians, centres = [], []
    for _ in range(count):
        turn = _rotation(rng, dim) if apart else shared
        hessians.append((turn * spectrum) @ turn.T)
        centres.append(common + apart * rng.standard_normal(dim))
    noise = rng.standard_normal((samples, dim))
    noise -= noise.mean(axis=0)
    return Problem(
        kind=QUADRATICS,
        dim=dim,
        count=count,
        samples=samples,
        smoothness=1.0,
        convexity=1.0 / condition,
        data={"hessians": np.array(hessians), "centres": np.array(centres), "noise": noise},
    )


def _logistic_data(
    rng: np.random.Generator, dim: int, count: int, samples: int, condition: float, apart: float
) -> dict[str, Array]:
    scales = np.geomspace(1.0, condition**-0.25, dim)
    truth = rng.standard_normal(dim) / np.sqrt(dim) * 3
    if apart == 0.0:  # workers of one data set
        features = rng.standard_normal((samples, dim)) * scales
        noise = rng.logistic(size=samples)
        labels = np.where(features @ truth + noise > 0, 1.0, -1.0)
        return {"features": np.stack([features] * count), "labels": np.stack([labels] * count)}
    means = apart * rng.standard_normal((count, 1, dim))
    features = (rng.standard_normal((count, samples, dim)) + means) * scales
    own = truth + apart * rng.standard_normal((count, dim))
    labels = np.where(
        np.einsum("csd,cd->cs", features, own) + rng.logistic(size=(count, samples)) > 0, 1.0, -1.0
    )
    return {"features": features, "labels": labels}


def _logistic(
    rng: np.random.Generator, dim: int, count: int, samples: int, condition: float, apart: float
) -> Problem:
    """Mean log(1 + exp(−y·aᵀx)) + λ/2‖x‖²."""
    data = _logistic_data(rng, dim, count, samples, condition, apart)
    largest = max(float(np.linalg.eigvalsh(a.T @ a / samples)[-1]) for a in data["features"]) / 4
    ridge = largest / condition
    return Problem(
        kind=LOGISTIC,
        dim=dim,
        count=count,
        samples=samples,
        smoothness=largest + ridge,
        convexity=ridge,
        data={**data, "ridge": ridge},
    )


def _nonconvex(
    rng: np.random.Generator, dim: int, count: int, samples: int, condition: float, apart: float
) -> Problem:
    """Mean log(1 + exp(−y·aᵀx)) + λ·Σ x²/(1 + x²), samples of norm 1: smooth, and not convex."""
    data = _logistic_data(rng, dim, count, samples, condition, apart)
    norms = np.linalg.norm(data["features"], axis=2, keepdims=True)
    data["features"] = data["features"] / norms
    ridge = 0.01
    return Problem(
        kind=NONCONVEX,
        dim=dim,
        count=count,
        samples=samples,
        smoothness=0.25 + 2 * ridge,
        convexity=0.0,
        data={**data, "ridge": ridge},
        facts={"sample_gradient": 1.0 + 0.65 * ridge * np.sqrt(dim), "sample_smoothness": 0.25 + 2 * ridge},
    )


def _game(
    rng: np.random.Generator, dim: int, count: int, samples: int, condition: float, apart: float
) -> Problem:
    """Min over x, max over y of λ/2‖x‖² + xᵀA_i·y + a_iᵀx − b_iᵀy − λ/2‖y‖²; λ is 1/condition, ‖A‖ about 1."""
    half = dim // 2
    shared = (_rotation(rng, half) * np.geomspace(0.1, 1.0, half)) @ _rotation(rng, half)
    matrices = []
    for _ in range(count):
        own = rng.standard_normal((half, half)) / np.sqrt(half)
        matrices.append(shared + apart * own)
    largest = max(float(np.linalg.norm(m, 2)) for m in matrices)
    ridge = 1.0 / condition
    mean = np.mean(matrices, axis=0)
    return Problem(
        kind=GAME,
        dim=2 * half,
        count=count,
        samples=samples,
        smoothness=float(np.hypot(largest, ridge)),
        convexity=ridge,
        data={
            "matrices": np.array(matrices),
            "ridge": ridge,
            "pulls": rng.standard_normal((count, 2 * half)),
        },
        facts={"mean_smoothness": float(np.hypot(np.linalg.norm(mean, 2), ridge))},
    )


def _classes(
    rng: np.random.Generator, dim: int, count: int, samples: int, condition: float, apart: float
) -> Problem:
    """Softmax regression; one feature in twelve says anything. Nodes' classes by Dirichlet where ``apart`` is > 0."""
    features = dim // NUM_CLASSES
    telling = min(features, max(NUM_CLASSES, features // 12))
    truth = np.zeros((features, NUM_CLASSES))
    truth[rng.permutation(features)[:telling]] = 2.0 * rng.standard_normal((telling, NUM_CLASSES))

    def sample(how_many: int) -> tuple[Array, Any]:
        x = rng.standard_normal((how_many, features))
        return x, np.argmax(x @ truth + rng.gumbel(size=(how_many, NUM_CLASSES)), axis=1)

    pool_x, pool_y = sample(count * samples * 4)
    by_class = [list(rng.permutation(np.flatnonzero(pool_y == c))) for c in range(NUM_CLASSES)]
    xs, ys = [], []
    for _ in range(count):
        shares = (
            rng.dirichlet([1.0 / apart] * NUM_CLASSES) if apart else np.full(NUM_CLASSES, 1 / NUM_CLASSES)
        )
        wanted = rng.multinomial(samples, shares)
        rows = [
            by_class[c].pop() if by_class[c] else by_class[_fullest(by_class)].pop()
            for c in np.repeat(range(NUM_CLASSES), wanted)
        ]
        xs.append(pool_x[rows])
        ys.append(pool_y[rows])
    largest = max(float(np.linalg.eigvalsh(x.T @ x / samples)[-1]) for x in xs) / 2
    held_x, held_y = sample(HELD_OUT)
    ridge = largest / condition
    return Problem(
        kind=CLASSES,
        dim=features * NUM_CLASSES,
        count=count,
        samples=samples,
        smoothness=largest + ridge,
        convexity=ridge,
        data={
            "features": np.array(xs),
            "labels": np.array(ys),
            "ridge": ridge,
            "held_features": held_x,
            "held_labels": held_y,
        },
    )


def _fullest(lists: list[list[int]]) -> int:
    return max(range(len(lists)), key=lambda c: len(lists[c]))


def _sigmoid(t: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * t)))


def _regular(problem: Problem, at: Array) -> Array:
    """Return the gradient of the regulariser, [dim]."""
    if problem.kind == NONCONVEX:
        return np.asarray(problem.data["ridge"] * 2 * at / (1 + at**2) ** 2)
    return np.asarray(problem.data["ridge"] * at)


def _logistic_gradient(problem: Problem, node: int, at: Array, rows: Any) -> Array:
    features, labels = problem.data["features"][node][rows], problem.data["labels"][node][rows]
    outer = -labels * _sigmoid(-labels * (features @ at))
    return np.asarray(features.T @ outer / len(labels) + _regular(problem, at))


def _logistic_value(problem: Problem, node: int, at: Array, rows: Any) -> float:
    features, labels = problem.data["features"][node][rows], problem.data["labels"][node][rows]
    loss = float(np.mean(np.logaddexp(0.0, -labels * (features @ at))))
    squares = at**2 / (1 + at**2) if problem.kind == NONCONVEX else 0.5 * at**2
    return loss + float(problem.data["ridge"] * np.sum(squares))


def _quadratic_gradient(problem: Problem, node: int, at: Array, rows: Any) -> Array:
    data = problem.data
    exact = data["hessians"][node] @ (at - data["centres"][node])
    return np.asarray(exact if isinstance(rows, slice) else exact + data["noise"][rows].mean(axis=0))


def _quadratic_value(problem: Problem, node: int, at: Array, rows: Any) -> float:
    off = at - problem.data["centres"][node]
    exact = 0.5 * float(off @ problem.data["hessians"][node] @ off)
    return exact if isinstance(rows, slice) else exact + float(problem.data["noise"][rows].mean(axis=0) @ at)


def _game_operator(problem: Problem, node: int, at: Array, rows: Any) -> Array:
    half, matrix = problem.dim // 2, problem.data["matrices"][node]
    turned = np.concatenate([matrix @ at[half:], -matrix.T @ at[:half]])
    return np.asarray(turned + problem.data["ridge"] * at + problem.data["pulls"][node])


def _classes_loss(problem: Problem, node: int, at: Array, rows: Any) -> tuple[Array, Array, Any]:
    features, labels = problem.data["features"][node][rows], problem.data["labels"][node][rows]
    scores = features @ at.reshape(-1, NUM_CLASSES)
    return features, scores - scores.max(axis=1, keepdims=True), labels


def _classes_gradient(problem: Problem, node: int, at: Array, rows: Any) -> Array:
    features, scores, labels = _classes_loss(problem, node, at, rows)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1.0
    return np.asarray((features.T @ chances).ravel() / len(labels) + _regular(problem, at))


def _classes_value(problem: Problem, node: int, at: Array, rows: Any) -> float:
    _, scores, labels = _classes_loss(problem, node, at, rows)
    loss = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(labels)), labels]
    return float(loss.mean() + 0.5 * problem.data["ridge"] * at @ at)


def _no_value(problem: Problem, node: int, at: Array, rows: Any) -> float:
    raise ValueError("a game has no value that both sides minimise")


_DRAW: Mapping[str, Callable[..., Problem]] = {
    QUADRATICS: _quadratics,
    LOGISTIC: _logistic,
    GAME: _game,
    NONCONVEX: _nonconvex,
    CLASSES: _classes,
}
_GRADIENT: Mapping[str, Callable[[Problem, int, Array, Any], Array]] = {
    QUADRATICS: _quadratic_gradient,
    LOGISTIC: _logistic_gradient,
    GAME: _game_operator,
    NONCONVEX: _logistic_gradient,
    CLASSES: _classes_gradient,
}
_VALUE: Mapping[str, Callable[[Problem, int, Array, Any], float]] = {
    QUADRATICS: _quadratic_value,
    LOGISTIC: _logistic_value,
    GAME: _no_value,
    NONCONVEX: _logistic_value,
    CLASSES: _classes_value,
}
