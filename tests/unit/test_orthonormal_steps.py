"""Dion's and Muon's steps on several ranks, against their formulas written out in NumPy; wrong ones are seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from paceline.baselines.training.dion import Dion, shapes_of
from paceline.baselines.training.muon import Muon, orthogonal
from test_compressed_steps import orthogonal as gram_schmidt
from test_compressed_steps import run_steps
from training_task import SMALL, make_model, make_task, moves_of, on_ranks

from paceline.families.training.api.matrices import matrices_of
from paceline.families.training.api.sizes import Size

Array = npt.NDArray[np.float64]
STEPS, RATE = 6, 0.01


def weights_of(kind: Callable[..., Any], gradients_SRP: torch.Tensor) -> list[list[list[Array]]]:
    """Return all ranks' matrices after every step."""
    return run_steps(
        kind, gradients_SRP, lambda r: [m.double().numpy().copy() for m in r.matrices(r.flat.values)]
    )


def cut(vector: Array) -> list[Array]:
    """Return the matrices' parts of a vector like the parameters'."""
    model = make_model(SMALL)
    pieces, at = [], 0
    for parameter in model.parameters():
        pieces.append(vector[at : at + parameter.numel()].reshape(parameter.shape))
        at += parameter.numel()
    return [pieces[n] for n in matrices_of(model)]


def dion_trajectory(gradients_SRP: Array, right: Array, fraction: float, decay: float) -> list[list[Array]]:
    """Return matrices after every step of one process that has the mean gradient."""
    weights = [p.detach().double().numpy().copy() for n, p in enumerate(make_model(SMALL).parameters())]
    weights = [weights[n] for n in matrices_of(make_model(SMALL))]
    momenta, factors, at = [np.zeros_like(w) for w in weights], [], 0
    for w in weights:
        rank = int(np.ceil(fraction * min(w.shape)))
        factors.append(right[at : at + min(w.shape) * rank].reshape(-1, rank))
        at += min(w.shape) * rank
    found = []
    for step in gradients_SRP:
        for place, gradient in enumerate(cut(step.mean(axis=0))):
            momenta[place] = momenta[place] + gradient
            turned = gradient.shape[0] < gradient.shape[1]
            m = momenta[place].T if turned else momenta[place]
            p = gram_schmidt(m @ factors[place])
            r = m.T @ p
            m = m - (1 - decay) * p @ r.T
            momenta[place] = m.T if turned else m
            factors[place] = r / np.linalg.norm(r, axis=0)
            move = p @ factors[place].T
            rows, columns = weights[place].shape
            weights[place] = weights[place] - RATE * np.sqrt(rows / columns) * (move.T if turned else move)
        found.append([w.copy() for w in weights])
    return found


def distance(kind: Callable[..., Any], gradients: torch.Tensor, expected: list[list[Array]]) -> float:
    """Return how far any rank's moves are from what they should be, over those."""
    start = cut(
        np.concatenate([p.detach().double().numpy().reshape(-1) for p in make_model(SMALL).parameters()])
    )
    apart = 0.0
    for rank in weights_of(kind, gradients):
        for mine, theirs in zip(rank, expected, strict=True):
            for a, b, begun in zip(mine, theirs, start, strict=True):
                apart = max(apart, float(np.linalg.norm(a - b) / np.linalg.norm(b - begun)))
    return apart


class ForgetsErrors(Dion):
    """Keeps nothing that its factors left out."""

    def exchange_gradients(self, step: int) -> None:
        """Begin each step without a momentum."""
        self.momentum.zero_()
        super().exchange_gradients(step)


class DrawsAnew(Dion):
    """Begins each step's power iteration with the first right factors."""

    def exchange_gradients(self, step: int) -> None:
        """Take the factors that were drawn."""
        if step == 0:
            self.drawn = self.right.clone()
        self.right.copy_(self.drawn)
        super().exchange_gradients(step)


class TakesAllOut(Dion):
    """Takes everything that the factors carry out of its momentum: decay 0."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **(options | {"decay": 0.0}))


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("fraction", [0.25, 0.4, 1.0])
def test_a_step_is_the_papers(ranks: int, fraction: float) -> None:
    gradients = moves_of(STEPS, ranks)
    kind = partial(Dion, fraction=fraction)
    first = on_ranks(kind, 1, lambda r: r.right.double().numpy().copy(), size=SMALL)[0][1]
    expected = dion_trajectory(gradients.double().numpy(), first, fraction, 0.95)
    assert distance(kind, gradients, expected) < 1e-3, (
        "orthonormal bases of nearly parallel columns are inexact"
    )
    for wrong in (ForgetsErrors, TakesAllOut, *([DrawsAnew] if fraction < 1 else [])):
        assert distance(partial(wrong, fraction=fraction), gradients, expected) > 0.02


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_ranks_with_thin_factors_do_what_one_process_does(ranks: int) -> None:
    gradients = moves_of(STEPS, ranks)
    alone = weights_of(Dion, gradients.mean(dim=1, keepdim=True))[0]
    for rank in weights_of(Dion, gradients):
        for mine, theirs in zip(rank, alone, strict=True):
            for a, b in zip(mine, theirs, strict=True):
                assert a == pytest.approx(b, abs=1e-5)
    sent = on_ranks(Dion, ranks, lambda r: [s.numel() for s in r.sent], size=SMALL)[0][1]
    assert sum(sent) < make_task(size=SMALL).num_parameters


def test_matrices_of_layers_are_neither_embedding_nor_head() -> None:
    model = make_model(Size(layers=1, width=16, heads=2, tied=False))
    names = [n for n, _ in model.named_parameters()]
    assert {names[n].split(".", 2)[-1] for n in matrices_of(model)} == {
        "qkv.weight", "mix.weight", "up.weight", "down.weight",
    }  # fmt: skip
    shapes = shapes_of(make_task(size=SMALL), 0.25)
    assert all(s.thin and s.rank == 4 and s.longer >= s.shorter for s in shapes)
    assert not any(s.thin for s in shapes_of(make_task(size=SMALL), 1.0))


def test_a_matrix_without_a_gradient_waits_and_goes_on() -> None:
    gradients = moves_of(3, 2)
    gradients[:2] = 0.0
    for rank in weights_of(Dion, gradients):
        assert all((a == b).all() for a, b in zip(rank[0], rank[1], strict=True))
        assert all(np.linalg.norm(a - b) > 0.005 for a, b in zip(rank[1], rank[2], strict=True))


@pytest.mark.parametrize("shape", [(16, 16), (16, 64), (64, 16)])
def test_singular_values_come_near_one_and_vectors_stay(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    matrix = u @ torch.diag(torch.linspace(0.1, 1.0, len(s))) @ v
    found = u.T @ orthogonal(matrix) @ v.T
    values = found.diagonal()
    assert values.min() > 0.6 and values.max() < 1.25
    assert (found - torch.diag(values)).abs().max() < 1e-4
    assert not orthogonal(torch.zeros(shape)).any()


@pytest.mark.parametrize("ranks", [1, 3])
def test_muon_moves_along_the_orthogonal_momentum_of_the_mean(ranks: int) -> None:
    gradients = moves_of(STEPS, ranks)
    start = cut(
        np.concatenate([p.detach().double().numpy().reshape(-1) for p in make_model(SMALL).parameters()])
    )
    weights, momenta, expected = [w.copy() for w in start], [np.zeros_like(w) for w in start], []
    for step in gradients.double().numpy():
        for place, gradient in enumerate(cut(step.mean(axis=0))):
            momenta[place] = 0.95 * momenta[place] + gradient
            move = orthogonal(torch.from_numpy(gradient + 0.95 * momenta[place])).numpy()
            weights[place] = weights[place] - RATE * np.sqrt(gradient.shape[0] / gradient.shape[1]) * move
        expected.append([w.copy() for w in weights])
    assert distance(Muon, gradients, expected) < 1e-3
    assert distance(partial(Muon, decay=0.5), gradients, expected) > 0.02
