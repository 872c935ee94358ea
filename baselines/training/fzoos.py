"""FZooS: gradients of Gaussian processes that are fitted to values already asked for, corrected by what others know.

Shu et al., 2023, "Federated Zeroth-Order Optimization using Trajectory-Informed Surrogate Gradients"
(arXiv:2308.04077).

Algorithm: a client keeps all values that it has asked for.
1. Its gradient at x is that of the posterior mean of a Gaussian process (RBF kernel) on the ``nearest`` of them.
2. It adds ∇φ(x)ᵀ(w̄ − w_i): the mean of all clients' surrogates less its own, both by random features φ; in the t-th
   local step of a round a t-th of it (``fading``), else all of it.
3. After a step it asks for one value, at the new x.
4. When a round begins it asks for ``active`` values around x, where the surrogate is least certain of ``candidates``
   drawn ones; and sends the weights w_i of its surrogate. The server averages models and weights.
Cost of a round: local_steps + active values for each client; 32·(dim + features) bits up and down, in two messages.
Limits: solving for the surrogate is cubic in ``nearest``; the kernel's length is given.
"""

from __future__ import annotations

import numpy as np

from paceline import technique
from paceline.families.training.api.objective import (
    SERVER,
    Array,
    Given,
    Receive,
    Report,
    Run,
    Send,
    Sizes,
    Value,
)


def kernel(a: Array, b: Array, length: float) -> Array:
    """Return the RBF kernel between rows of a and of b, [a, b]."""
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2.0 * a @ b.T
    return np.asarray(np.exp(-np.maximum(squares, 0.0) / (2.0 * length**2)))


def slope_of(at: Array, points: Array, weights: Array, length: float) -> Array:
    """Return the gradient of Σ weights·k(·, points) at a point, [dim]."""
    near = kernel(at[None, :], points, length)[0] * weights
    return np.asarray(near @ (points - at) / length**2)


class Features:
    """Random features of the RBF kernel, the same on all nodes.

    Args:
        seed: Of the features.
        dim: Numbers of a point.
        count: Features.
        length: Of the kernel.
    """

    def __init__(self, seed: int, dim: int, count: int, length: float) -> None:
        rng = np.random.default_rng([seed, 3])
        self.turns = rng.standard_normal((count, dim)) / length
        self.shifts = rng.uniform(0.0, 2.0 * np.pi, count)
        self.scale = np.sqrt(2.0 / count)

    def at(self, points: Array) -> Array:
        """Return the features of points, [points, count]."""
        return np.asarray(self.scale * np.cos(points @ self.turns.T + self.shifts))

    def slope(self, at: Array, weights: Array) -> Array:
        """Return the gradient of weights·features at a point, [dim]."""
        return np.asarray(-self.scale * (np.sin(self.turns @ at + self.shifts) * weights) @ self.turns)


@technique(
    name="fzoos",
    family="training",
    implements=("objective",),
    summary="steps along gradients of surrogates of past values, corrected towards all clients' mean",
    paper="fzoos",
    properties={"by_values": True},
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract and introduction; the text could not be had, and the code stands for it",
            "code": "github.com/shuyao95/FZooS: optimizers.py, settings.py, run_exp.py, funcs/synthetics.py",
        },
        "deviations": (
            "Problems have 10 numbers; the authors' synthetic ones have 300, and counts of values are smaller here.",
            "No values are asked for around a model between local steps; the authors ask for 5 of 100 drawn ones.",
            "Weights of features are fitted to the nearest values that the surrogate has, too; the authors' to 500.",
            "The least certain values are those of the surrogate; the authors' are those of its gradient.",
            "The kernel is an RBF of a given length; the authors' is a Matérn kernel of fitted length.",
            "Steps are plain; the authors' are Adam's.",
            "The server takes every mean; the authors' keeps the old model where the mean is no better.",
        ),
        "constants": {
            "nearest": {
                "here": 60,
                "authors": "150 (max_queries)",
                "official": 150,
                "source": "github.com/shuyao95/FZooS: settings.py",
                "differs": "counts are smaller, since problems have 10 numbers and not 300",
            },
            "candidates": {
                "here": 40,
                "authors": "200 (explore)",
                "official": 200,
                "source": "github.com/shuyao95/FZooS: settings.py",
                "differs": "counts are smaller, since problems have 10 numbers and not 300",
            },
            "active": {
                "here": 10,
                "authors": "50 (n_exp)",
                "official": 50,
                "source": "github.com/shuyao95/FZooS: settings.py",
                "differs": "counts are smaller, since problems have 10 numbers and not 300",
            },
            "radius": {
                "here": 0.1,
                "authors": "0.02, or by how far clients moved",
                "official": 0.02,
                "source": "github.com/shuyao95/FZooS: settings.py",
                "differs": "problems are of another size",
            },
            "features": {
                "here": 500,
                "authors": "10000 (n_components)",
                "official": 10000,
                "source": "github.com/shuyao95/FZooS: optimizers.py",
                "differs": "counts are smaller, since problems have 10 numbers and not 300",
            },
            "length": {
                "here": 6.0,
                "authors": "1, or fitted; on problems of unit size",
                "official": 1.0,
                "source": "github.com/shuyao95/FZooS: optimizers.py",
                "differs": "the length is given, and not fitted",
            },
            "jitter": {
                "here": 1e-8,
                "authors": "1e-6 (alpha)",
                "official": 1e-06,
                "source": "github.com/shuyao95/FZooS: optimizers.py",
                "differs": "the kernel is an RBF in double precision",
            },
            "correct": {"here": True, "authors": "by the random features of all clients (rff)"},
            "fading": {
                "here": True,
                "authors": "gamma / (t + 1), with gamma 1 (optimizers.py)",
                "official": True,
                "source": "github.com/shuyao95/FZooS: optimizers.py",
            },
            "rate": {"here": 0.5, "authors": "by experiment; in units of 1/L here"},
            "local_steps": {
                "here": 10,
                "authors": "10 to 20 (iters), by experiment",
                "official": 30,
                "source": "github.com/shuyao95/FZooS: run_exp.py",
                "differs": "rounds are shorter; their experiments set 10 to 20",
            },
            "single": {"here": True, "authors": "single precision"},
        },
        "checked_by": (
            "tests/unit/test_objective_techniques.py::test_a_surrogates_gradient_is_the_derivative_of_its_mean",
            "tests/unit/test_objective_techniques.py::test_random_features_give_the_kernel",
            "tests/unit/test_objective_techniques.py::test_a_correction_that_fades_leaves_some_of_what_it_corrects",
        ),
    },
)
class FZooS:
    """Step along surrogates' gradients."""

    def __init__(
        self,
        *,
        rate: float = 0.5,
        local_steps: int = 10,
        nearest: int = 60,
        candidates: int = 40,
        active: int = 10,
        radius: float = 0.1,
        features: int = 500,
        length: float = 6.0,
        jitter: float = 1e-8,
        correct: bool = True,
        fading: bool = True,
        single: bool = True,
    ) -> None:
        self.rate, self.local_steps, self.nearest = rate, local_steps, nearest
        self.candidates, self.active, self.radius = candidates, active, radius
        self.features, self.length, self.jitter, self.correct = features, length, jitter, correct
        self.fading = fading
        self.dtype = np.float32 if single else np.float64
        self.asked: list[Array] = []
        self.values: list[float] = []

    def sizes(self, given: Given) -> Sizes:
        """Return the sizes of a model and of a surrogate's weights."""
        width = 8 * np.dtype(self.dtype).itemsize
        both = (width * given.dim, width * self.features)
        return Sizes(clients=both, server=both)

    def run(self, given: Given) -> Run:
        """Serve, or learn."""
        return self._serve(given) if given.me == SERVER else self._learn(given)

    def _ask(self, at: Array) -> Run:
        self.asked.append(at)
        self.values.append((yield Value(at)))

    def _near(self, at: Array) -> tuple[Array, Array, float]:
        """Return the nearest points that were asked for, their values less the mean, and that mean."""
        points, values = np.array(self.asked), np.array(self.values)
        chosen = np.argsort(((points - at) ** 2).sum(axis=1), kind="stable")[: self.nearest]
        mean = float(values[chosen].mean())
        return points[chosen], values[chosen] - mean, mean

    def _local_slope(self, at: Array) -> Array:
        points, values, _ = self._near(at)
        gram = kernel(points, points, self.length) + self.jitter * np.eye(len(points))
        return slope_of(at, points, np.asarray(np.linalg.solve(gram, values), dtype=np.float64), self.length)

    def _explore(self, given: Given, at: Array, rng: np.random.Generator, count: int) -> Run:
        """Ask for values around a point where they are least certain."""
        drawn = at + self.radius * rng.uniform(-1.0, 1.0, (max(count, self.candidates), given.dim))
        if self.asked:
            points, _, _ = self._near(at)
            gram = kernel(points, points, self.length) + self.jitter * np.eye(len(points))
            cross = kernel(drawn, points, self.length)
            known = np.einsum("ij,ji->i", cross, np.linalg.solve(gram, cross.T))
            drawn = drawn[np.argsort(known, kind="stable")]
        for point in drawn[:count]:
            yield from self._ask(point)

    def _learn(self, given: Given) -> Run:
        rng = np.random.default_rng(given.own_seed)
        features = Features(given.shared_seed, given.dim, self.features, self.length)
        number = 0
        while True:
            own = (yield Receive()).parts[0].astype(np.float64)
            begin = own
            yield from self._ask(own)
            yield from self._explore(
                given, own, rng, self.active if number else max(self.active, given.dim + 1)
            )
            weights = self._weights(features, own)
            yield Send(SERVER, (weights.astype(self.dtype),))
            shared = (yield Receive()).parts[0].astype(np.float64)
            for step in range(self.local_steps):
                slope = self._local_slope(own)
                if self.correct:
                    share = 1.0 / (step + 1) if self.fading else 1.0
                    slope = slope + share * features.slope(own, shared - weights)
                own = own - self.rate / given.smoothness * slope
                yield from self._ask(own)
            yield Send(SERVER, ((own - begin).astype(self.dtype),))
            number += 1

    def _weights(self, features: Features, at: Array) -> Array:
        points, values, _ = self._near(at)
        phi = features.at(points)
        gram = phi @ phi.T + self.jitter * np.eye(len(points))
        return np.asarray(phi.T @ np.linalg.solve(gram, values))

    def _gathered(self, given: Given) -> Run:
        told: dict[int, Array] = {}
        while len(told) < len(given.neighbours):
            message = yield Receive()
            told[message.sender] = message.parts[0].astype(np.float64)
        return np.sum([given.weights[c] * told[c] for c in given.neighbours], axis=0)

    def _serve(self, given: Given) -> Run:
        model = given.start.copy()
        while True:
            for client in given.neighbours:
                yield Send(client, (model.astype(self.dtype),))
            shared = yield from self._gathered(given)
            for client in given.neighbours:
                yield Send(client, (shared.astype(self.dtype),))
            model = model + (yield from self._gathered(given))
            yield Report(model)
