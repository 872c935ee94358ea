"""Distributed Shampoo against its formulas in NumPy and SciPy, and against itself on other numbers of ranks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from paceline.baselines.training import distributed_shampoo as shampoo
from paceline.baselines.training.distributed_shampoo import DistributedShampoo, Kept, blocks_of
from scipy.linalg import fractional_matrix_power
from torch import Tensor
from training_task import SMALL, driven, make_model, moves_of

from paceline.families.training.api.replica import BETAS

STEPS, ROOT_EVERY, RATE, DECAY = 22, 20, 0.01, 0.9


def played(kind: Any, gradients_SRP: Tensor) -> np.ndarray:
    """Return all ranks' weights after each step, (steps, ranks, P), where gradients are as told."""
    return torch.stack(driven(kind, gradients_SRP, RATE)).numpy()


def of_a_block(gradients: np.ndarray) -> np.ndarray:
    """Return the directions of a block by the formulas, in float64; gradients are (steps, *shape)."""
    factors = [np.zeros((side, side)) for side in gradients.shape[1:]]
    momentum, square = np.zeros(gradients.shape[1:]), np.zeros(gradients.shape[1:])
    roots: list[np.ndarray] = []
    found = []
    for t, g in enumerate(gradients, start=1):
        outer = [g @ g.T, g.T @ g] if g.ndim == 2 else [np.outer(g, g)]
        factors = [DECAY * f + (1 - DECAY) * o for f, o in zip(factors, outer, strict=True)]
        momentum = BETAS[0] * momentum + (1 - BETAS[0]) * g
        square = BETAS[1] * square + (1 - BETAS[1]) * g * g
        mean = momentum / (1 - BETAS[0] ** t)
        adams = mean / (np.sqrt(square / (1 - BETAS[1] ** t)) + 1e-8)
        if t % ROOT_EVERY == 0:
            whole = [f / (1 - DECAY**t) + 1e-12 * np.eye(len(f)) for f in factors]
            roots = [np.real(fractional_matrix_power(f, -0.5 / len(whole))) for f in whole]
        if roots:
            direction = roots[0] @ mean @ roots[1] if g.ndim == 2 else roots[0] @ mean
            adams = direction * np.linalg.norm(adams) / np.linalg.norm(direction)
        found.append(adams)
    return np.stack(found)


def written_out(gradients_SRP: Tensor, side: int) -> np.ndarray:
    """Return the weights after each step, (steps, P)."""
    shapes = [tuple(p.shape) for p in make_model(SMALL).parameters()]
    weights = torch.cat([p.detach().reshape(-1) for p in make_model(SMALL).parameters()]).double().numpy()
    mean, at, moved = gradients_SRP.double().mean(dim=1).numpy(), 0, []
    for shape in shapes:
        count = int(np.prod(shape))
        whole = mean[:, at : at + count].reshape(-1, *shape)
        out = np.zeros_like(whole)
        for rows in range(0, shape[0], side):
            for columns in range(0, shape[1], side) if len(shape) == 2 else [None]:
                cut = (slice(None), slice(rows, rows + side))
                cut += () if columns is None else (slice(columns, columns + side),)
                out[cut] = of_a_block(whole[cut])
        moved.append(out.reshape(len(out), -1))
        at += count
    return weights - RATE * np.concatenate(moved, axis=1).cumsum(axis=0)


def apart(found_SRP: np.ndarray, expected_SP: np.ndarray) -> float:
    """Return how far weights are from what is written out, at most, over a step of Adam."""
    return float(np.abs(found_SRP - expected_SP[:, None]).max()) / RATE


class ForgetsTheGraft(Kept):
    """Steps as long as Shampoo's own direction."""

    def step(self, step: int, *, decay: float, root_every: int) -> None:
        """Halve it."""
        super().step(step, decay=decay, root_every=root_every)
        self.direction.mul_(0.5)


class RootsOfOneSide(Kept):
    """Leaves the right factor out."""

    def step(self, step: int, *, decay: float, root_every: int) -> None:
        """Put one in the place of the right root."""
        super().step(step, decay=decay, root_every=root_every)
        if len(self.roots) > 1 and (step + 1) % root_every == 0:
            self.roots[1].copy_(torch.eye(len(self.roots[1])))


SIDE = 16
"""Factors of this side have full rank after twenty gradients of noise; roots of others would show rounding."""


@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_are_those_of_the_formulas(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = partial(DistributedShampoo, side=SIDE, root_every=ROOT_EVERY, decay=DECAY)
    gradients = moves_of(STEPS, ranks)
    expected = written_out(gradients, SIDE)
    assert apart(played(kind, gradients), expected) < 0.005
    for wrong in (ForgetsTheGraft, RootsOfOneSide):
        with monkeypatch.context() as patch:
            patch.setattr(shampoo, "Kept", wrong)
            assert apart(played(kind, gradients), expected) > 0.05
    assert apart(played(partial(kind, decay=0.5), gradients), expected) > 0.05
    assert apart(played(partial(kind, side=8), gradients), expected) > 0.05


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_do_what_one_process_does(ranks: int) -> None:
    kind = partial(DistributedShampoo, side=SIDE, root_every=ROOT_EVERY)
    gradients = moves_of(STEPS, 1).repeat(1, ranks, 1)
    alone, shared = played(kind, gradients[:, :1]), played(kind, gradients)
    replicated = played(partial(kind, share=False), gradients)
    assert np.abs(shared - alone).max() < 1e-2 * RATE
    assert np.array_equal(shared, replicated), "who computes a direction does not change it"
    assert all(np.array_equal(shared[:, 0], shared[:, rank]) for rank in range(ranks))


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_blocks_cover_every_element_once_and_are_dealt_out_evenly(world_size: int) -> None:
    shapes = [(64, 32), (32,), (7, 5), (100,), (320, 80)]
    blocks = blocks_of(shapes, 32, world_size, share=True)
    for number, shape in enumerate(shapes):
        seen = np.zeros(shape)
        for block in blocks:
            if block.number == number:
                seen[block.cuts] += 1
                assert seen[block.cuts].shape == block.shape and max(block.shape) <= 32
        assert (seen == 1).all()
    loads = [sum(b.count for b in blocks if b.owner == rank) for rank in range(world_size)]
    assert max(loads) - min(loads) <= 32 * 32 and [b.owner for b in blocks] == sorted(b.owner for b in blocks)


def test_without_roots_it_is_adam() -> None:
    gradients = moves_of(STEPS, 1)
    found = played(partial(DistributedShampoo, root_every=STEPS + 1), gradients)
    vector = torch.nn.Parameter(torch.cat([p.detach().reshape(-1) for p in make_model(SMALL).parameters()]))
    optimizer = torch.optim.AdamW([vector], lr=RATE, betas=BETAS, weight_decay=0.0)
    for step in range(STEPS):
        vector.grad = gradients[step, 0].clone()
        optimizer.step()
    assert np.abs(found[-1, 0] - vector.detach().numpy()).max() < 1e-2 * RATE
