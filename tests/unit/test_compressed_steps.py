"""Compressed gradients and momenta on several ranks, against their papers' formulas written out in NumPy.

Ranks are given gradients instead of computing them. Each formula is also held against techniques that are wrong in one
respect, which must be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from paceline.baselines.training.flexdemo import FlexDeMo
from paceline.baselines.training.one_bit_adam import OneBitAdam
from paceline.baselines.training.powersgd import PowerSgd, left_size, right_size
from training_task import SMALL, make_model, moves_of, on_ranks

from paceline.families.training.api.decoupled import DecoupledMomentum
from paceline.families.training.api.replica import BETAS

Array = npt.NDArray[np.float64]
STEPS = 5


def run_steps(
    kind: Callable[..., Any], gradients_SRP: torch.Tensor, look: Callable[[Any], Any]
) -> list[list[Any]]:
    """Give a technique's ranks gradients; return what a look at each rank after each step shows, (ranks, steps)."""
    steps, ranks, _ = gradients_SRP.shape

    def run(replica: Any) -> list[Any]:
        found = []
        for step in range(steps):
            replica.set_rate(0.01)
            replica.flat.gradients.copy_(gradients_SRP[step, replica.comm.rank])
            replica.exchange_gradients(step)
            replica.update(step)
            replica.exchange_parameters(step)
            found.append(look(replica))
        return found

    return [found for _, found in on_ranks(kind, ranks, run, size=SMALL, steps=steps)]


# PowerSGD


def orthogonal(columns: Array) -> Array:
    """Return Gram-Schmidt's columns."""
    done: list[Array] = []
    for column in columns.T:
        rest = column - sum((q * (q @ column) for q in done), np.zeros_like(column))
        done.append(rest / np.linalg.norm(rest))
    return np.stack(done, axis=1)


def power_trajectory(gradients_SRP: Array, right: Array, rank: int) -> list[Array]:
    """Return every step's gradient of all ranks, from the first right factors, one after another."""
    shapes = [tuple(p.shape) for p in make_model(SMALL).parameters()]
    ends = np.cumsum([int(np.prod(s)) for s in shapes])[:-1]
    factors, at = [], 0
    for shape in shapes:
        size = shape[1] * rank if len(shape) == 2 else 0
        factors.append(right[at : at + size].reshape(-1, rank))
        at += size
    error = [np.zeros((gradients_SRP.shape[1], *shape)) for shape in shapes]
    trajectory = []
    for step in gradients_SRP:
        whole = []
        for number, (shape, flat_RP) in enumerate(zip(shapes, np.split(step, ends, axis=1), strict=True)):
            g = flat_RP.reshape(-1, *shape)
            if len(shape) == 1:
                whole.append(g.mean(axis=0))
                continue
            m = g + error[number]
            p = orthogonal((m @ factors[number]).mean(axis=0))
            factors[number] = np.stack([each.T @ p for each in m]).mean(axis=0)
            product = p @ factors[number].T
            error[number] = m - product
            whole.append(product)
        trajectory.append(np.concatenate([part.reshape(-1) for part in whole]))
    return trajectory


class ForgetsErrors(PowerSgd):
    """Keeps nothing of what its factors left out."""

    def exchange_gradients(self, step: int) -> None:
        """Begin each step without an error."""
        self.error.zero_()
        super().exchange_gradients(step)


class DrawsAnew(PowerSgd):
    """Begins each step's power iteration with the first right factors."""

    def exchange_gradients(self, step: int) -> None:
        """Take the factors that were drawn."""
        if step == 0:
            self.drawn = self.right.clone()
        self.right.copy_(self.drawn)
        super().exchange_gradients(step)


def test_thin_factors_carry_the_mean_of_gradients_and_of_what_was_left_out() -> None:
    gradients = moves_of(STEPS, 3)
    first = on_ranks(partial(PowerSgd, rank=2), 1, lambda r: r.right.double().numpy().copy(), size=SMALL)[0][
        1
    ]
    expected = power_trajectory(gradients.double().numpy(), first, 2)

    def distance(kind: Callable[..., Any]) -> float:
        found = run_steps(kind, gradients, lambda r: r.flat.gradients.double().numpy().copy())
        pairs = [(a, b) for rank in found for a, b in zip(rank, expected, strict=True)]
        return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)

    assert distance(partial(PowerSgd, rank=2)) < 1e-3
    for wrong in (partial(ForgetsErrors, rank=2), partial(DrawsAnew, rank=2), partial(PowerSgd, rank=1)):
        assert distance(wrong) > 0.1


@pytest.mark.parametrize("seed", [5, 6])
def test_factors_of_full_rank_carry_the_mean_of_gradients_whatever_their_own_rank(seed: int) -> None:
    """Also of gradients that are products of vectors: the right factors of the next step have no inverse then."""
    gradients = moves_of(STEPS, 3, seed=seed)
    at = 0
    for shape in (tuple(p.shape) for p in make_model(SMALL).parameters()):
        size = int(np.prod(shape))
        if len(shape) == 2 and seed == 6:
            piece = gradients[:, :, at : at + size].view(STEPS, 3, *shape)
            piece.copy_(piece[..., :, :1] * piece[..., :1, :] * 100)
        at += size

    def distance(rank: int) -> float:
        kind = partial(PowerSgd, rank=rank)
        found = run_steps(kind, gradients, lambda r: r.flat.gradients.double().clone())
        expected = gradients.double().mean(dim=1)
        pairs = [(a, b) for trajectory in found for a, b in zip(trajectory, expected, strict=True)]
        return max(float((a - b).norm() / b.norm()) for a, b in pairs)

    assert distance(1_000_000) < 3e-6
    assert distance(2) > 1e-3, "what fewer factors leave out is seen"


def test_a_matrix_has_no_more_factors_than_rows() -> None:
    shapes: list[tuple[int, ...]] = [(64, 16), (16, 48), (16,)]
    assert left_size(shapes, 2) == 2 * 64 + 2 * 16 + 16
    assert right_size(shapes, 2) == 2 * 16 + 2 * 48
    assert left_size(shapes, 100) == 64 * 64 + 16 * 16 + 16
    assert right_size(shapes, 100) == 64 * 16 + 16 * 48


# 1-bit Adam


def one_bit(values: Array) -> Array:
    return np.where(values >= 0, 1.0, -1.0) * np.abs(values).mean()


def one_bit_trajectory(gradients_SRP: Array, begin: Array, warmup: int, sizes: Sequence[int]) -> list[Array]:
    """Return the weights after each step: Adam for a warm-up, then signs with errors at workers and servers."""
    steps, ranks, count = gradients_SRP.shape
    theta, v, m = begin.copy(), np.zeros(count), np.zeros((ranks, count))
    parts = np.split(np.arange(count), np.cumsum(sizes)[:-1])
    chunks = [chunk for part in parts for chunk in np.array_split(part, ranks)]
    worker, server = np.zeros((ranks, count)), np.zeros(count)
    (beta, gamma), trajectory = BETAS, []
    for t in range(steps):
        g = gradients_SRP[t]
        if t < warmup:
            mean = g.mean(axis=0)
            m = np.repeat((beta * m[0] + (1 - beta) * mean)[None], ranks, axis=0)
            v = gamma * v + (1 - gamma) * mean**2
        else:
            corrected = beta * m + (1 - beta) * g + worker
            for part in chunks:
                sent = np.stack([one_bit(c[part]) for c in corrected])
                worker[:, part] = corrected[:, part] - sent
                served = sent.mean(axis=0) + server[part]
                m[:, part] = one_bit(served)
                server[part] = served - one_bit(served)
        root = np.sqrt(v / (1 - gamma ** min(t + 1, warmup))) + 1e-8
        theta = theta - 0.01 / (1 - beta ** (t + 1)) * m[0] / root
        trajectory.append(theta)
    return trajectory


class NoWorkerError(OneBitAdam):
    """Forgets what workers' signs left out."""

    def exchange_gradients(self, step: int) -> None:
        """Begin without it."""
        for part in self.compressed:
            part.worker_error.zero_()
        super().exchange_gradients(step)


class NoServerError(OneBitAdam):
    """Forgets what servers' signs left out."""

    def exchange_gradients(self, step: int) -> None:
        """Begin without it."""
        for part in self.compressed:
            part.server_error.zero_()
        super().exchange_gradients(step)


@pytest.mark.parametrize(
    ("ranks", "by_tensor"),
    [
        (3, False),
        (2, True),
        *(pytest.param(*case, marks=pytest.mark.full) for case in ((2, False), (3, True))),
    ],
)
def test_momenta_travel_as_signs_with_errors_at_workers_and_servers(ranks: int, by_tensor: bool) -> None:
    gradients = moves_of(STEPS, ranks) + 0.003
    tensors = [p.detach().reshape(-1) for p in make_model(SMALL).parameters()]
    begin = torch.cat(tensors).double().numpy()
    sizes = [p.numel() for p in tensors] if by_tensor else [len(begin)]
    expected = one_bit_trajectory(gradients.double().numpy(), begin, 2, sizes)

    def distance(kind: Callable[..., Any]) -> float:
        found = run_steps(kind, gradients, lambda r: r.flat.values.double().numpy().copy())
        ways = [(rank[-1] - expected[-1], expected[-1] - expected[1]) for rank in found]
        return max(float(np.linalg.norm(off) / np.linalg.norm(way)) for off, way in ways)

    right: dict[str, Any] = {"warmup_share": 2 / STEPS, "by_tensor": by_tensor}
    assert distance(partial(OneBitAdam, **right)) < 1e-3
    for wrong in (
        partial(NoWorkerError, **right),
        partial(NoServerError, **right),
        partial(OneBitAdam, **right, feedback=False),
        partial(OneBitAdam, **(right | {"warmup_share": 3 / STEPS})),
        partial(OneBitAdam, **(right | {"by_tensor": not by_tensor})),
    ):
        assert distance(wrong) > 0.05


# DeMo, where every rank is a group, and FlexDeMo


def waves() -> Array:
    """Return the orthonormal cosine transform of 64 values, a row a frequency, element by element."""
    rows = [[np.cos(np.pi * f * (2 * x + 1) / 128) for x in range(64)] for f in range(64)]
    matrix = np.array(rows) * np.sqrt(2 / 64)
    matrix[0] /= np.sqrt(2)
    return matrix


def chunks_of(vector: Array) -> Array:
    padded = np.zeros(-(-len(vector) // 4096) * 4096)
    padded[: len(vector)] = vector
    return padded.reshape(-1, 64, 64)


def largest(m: Array, k: int) -> tuple[Array, Array]:
    """Return the k largest cosine coefficients of each chunk, in bfloat16, and 1 where there is one: (chunks, 4096)."""
    transform, squares = waves(), chunks_of(m)
    kept, chosen = np.zeros((len(squares), 4096)), np.zeros((len(squares), 4096))
    for chunk, square in enumerate(squares):
        coefficients = (transform @ square @ transform.T).reshape(-1)
        places = np.argsort(-np.abs(coefficients))[:k]
        kept[chunk, places] = torch.from_numpy(coefficients[places]).bfloat16().double().numpy()
        chosen[chunk, places] = 1
    return kept, chosen


def stand_for(kept_CE: Array, count: int) -> Array:
    """Return the vector that coefficients stand for."""
    transform = waves()
    found = [transform.T @ kept.reshape(64, 64) @ transform for kept in kept_CE]
    return np.concatenate([f.reshape(-1) for f in found])[:count]


Look = tuple[Array, Array]
"""A rank's momentum and weights after a step."""


def hold_decoupled(
    kind: Callable[..., DecoupledMomentum], gradients_SRP: torch.Tensor, group: int, k: int, mean_over: str
) -> None:
    """Hold each step against the formulas, from the momenta and weights with which it began."""
    steps, ranks, count = gradients_SRP.shape
    begin = torch.cat([p.detach().reshape(-1) for p in make_model(SMALL).parameters()]).double().numpy()
    shares = np.array_split(np.arange(count), group)

    def look(replica: DecoupledMomentum) -> Look:
        return replica.momentum.double().numpy().copy(), replica.flat.values.double().numpy().copy()

    found: list[list[Look]] = run_steps(kind, gradients_SRP, look)
    for t in range(steps):
        g = gradients_SRP[t].double().numpy()
        direction = np.zeros(count)
        totals: list[Any] = [0.0] * group
        senders: list[Any] = [0.0] * group
        for rank in range(ranks):
            part, first = shares[rank % group], rank - rank % group
            before = found[rank][t - 1][0] if t else np.zeros(len(part))
            m = 0.9 * before + g[first : first + group, part].mean(axis=0)
            kept, chosen = largest(m, k)
            np.testing.assert_allclose(found[rank][t][0], m - stand_for(kept, len(m)), rtol=0, atol=1e-5)
            totals[rank % group] += kept
            senders[rank % group] += chosen
        for part, total, number in zip(shares, totals, senders, strict=True):
            mean = total / np.maximum(number, 1) if mean_over == "senders" else total
            direction[part] = stand_for(mean, len(part))
        moved = found[0][t][1] - (found[0][t - 1][1] if t else begin)
        decided = np.abs(direction) > 0.01 * np.sqrt(np.square(direction).mean())
        assert decided.mean() > 0.95, "rounding decides few signs"
        np.testing.assert_allclose(moved[decided], -0.005 * np.sign(direction[decided]), rtol=0, atol=1e-6)
        assert all(np.array_equal(found[0][t][1], other[t][1]) for other in found)


class KeepsWhatItSent(FlexDeMo):
    """Takes nothing out of its momentum."""

    def exchange_gradients(self, step: int) -> None:
        """Decay, take in the gradient, and go back to that."""
        whole = self.decay * self.momentum + self.flat.gradients
        super().exchange_gradients(step)
        self.momentum.copy_(whole)


@pytest.mark.parametrize(
    ("group", "ranks", "mean_over"), [(1, 3, "ranks"), (2, 4, "ranks"), (1, 3, "senders")]
)
def test_fast_components_leave_the_momentum_and_their_signs_move_the_weights(
    group: int, ranks: int, mean_over: str
) -> None:
    gradients = moves_of(STEPS, ranks)
    right: dict[str, Any] = {
        "group": group,
        "k": 64,
        "decay": 0.9,
        "rate_factor": 0.5,
        "mean_over": mean_over,
    }
    hold_decoupled(partial(FlexDeMo, **right), gradients, group, 64, mean_over)
    other = "senders" if mean_over == "ranks" else "ranks"
    for wrong in ({"decay": 0.8}, {"k": 32}, {"rate_factor": 1.0}, {"mean_over": other}):
        with pytest.raises(AssertionError):
            hold_decoupled(partial(FlexDeMo, **(right | wrong)), gradients, group, 64, mean_over)
    if group == 1:
        with pytest.raises(AssertionError):
            hold_decoupled(partial(KeepsWhatItSent, **right), gradients, group, 64, mean_over)
