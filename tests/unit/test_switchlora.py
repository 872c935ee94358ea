"""SwitchLoRA against factors that are kept apart from the matrix, written out in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from paceline.baselines.training import switchlora
from paceline.baselines.training.switchlora import Factors, Side, SwitchLora, starts
from training_task import SMALL, driven, make_comm, make_model, make_task, moves_of

from paceline.families.training.api.matrices import matrices_of
from paceline.families.training.api.replica import BETAS

STEPS, RATE, FACTOR, STILL = 14, 0.01, 3.0, 2
ALWAYS = 1e9
"""Of ``fall``: switching does not fall within any run."""
KIND = partial(SwitchLora, fraction=0.25, switch_every=4.0, fall=ALWAYS, still=STILL, rate_factor=FACTOR)
"""One vector of four of each side is switched in every step."""


@dataclass
class Written:
    """A factor: r vectors in rows, each with moments and an age of its own."""

    pool: np.ndarray
    chosen: list[int]
    at: int
    vectors: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.vectors = self.pool[self.chosen].copy()
        self.mean = np.zeros_like(self.vectors)
        self.square = np.zeros_like(self.vectors)
        self.ages = np.zeros((len(self.chosen), 1))
        self.still = np.zeros((len(self.chosen), 1))

    def switch(self) -> int:
        """Switch the next vector for the candidate that follows on the last one taken."""
        row = self.at
        fresh = (self.chosen[row - 1] + 1) % len(self.pool)
        self.pool[self.chosen[row]] = self.vectors[row]
        self.vectors[row], self.chosen[row] = self.pool[fresh], fresh
        self.at = (row + 1) % len(self.chosen)
        return row

    def forget(self, row: int) -> None:
        self.mean[row], self.square[row], self.ages[row], self.still[row] = 0, 0, 0, STILL

    def step(self, gradient: np.ndarray) -> None:
        gradient = np.where(self.still > 0, 0, gradient)
        self.still = np.maximum(self.still - 1, 0)
        self.ages += 1
        self.mean = BETAS[0] * self.mean + (1 - BETAS[0]) * gradient
        self.square = BETAS[1] * self.square + (1 - BETAS[1]) * gradient**2
        mean, square = self.mean / (1 - BETAS[0] ** self.ages), self.square / (1 - BETAS[1] ** self.ages)
        self.vectors -= RATE * FACTOR * mean / (np.sqrt(square) + 1e-8)


def matrix_written_out(
    weights: np.ndarray, gradients: np.ndarray, left: Written, right: Written, *, switches: bool = True
) -> np.ndarray:
    """Return a matrix after each step, (steps, rows, columns): W₀ + B·A/r, where W₀ takes what a switch changes."""
    rank = len(left.chosen)
    frozen = weights - left.vectors.T @ right.vectors / rank
    found = []
    for gradient in gradients:
        of_left, of_right = right.vectors @ gradient.T / rank, left.vectors @ gradient / rank
        for side, partner in ((right, left), (left, right)) if switches else ():
            before = left.vectors.T @ right.vectors
            partner.forget(side.switch())
            frozen += (before - left.vectors.T @ right.vectors) / rank
        left.step(of_left)
        right.step(of_right)
        found.append(frozen + left.vectors.T @ right.vectors / rank)
    return np.stack(found)


def written_out(gradients_SRP: torch.Tensor, *, switches: bool = True) -> list[np.ndarray]:
    """Return the layers' matrices after each step, from the candidates that the technique drew."""
    fresh = KIND(make_task(size=SMALL, steps=STEPS), make_comm())
    mean = gradients_SRP.double().mean(dim=1).numpy()
    found, model = [], make_model(SMALL)
    bounds, parameters = fresh.flat.bounds, list(model.parameters())
    for number, factors in zip(matrices_of(model), fresh.factors, strict=True):
        shape = parameters[number].shape
        start, stop = bounds[number]
        pools = [side.pool.double().numpy().copy() for side in (factors.left, factors.right)]
        last = [*range(len(pools[0]) - 4, len(pools[0]))]
        left = Written(pools[0], last[-2:] + last[:-2], 2)
        right = Written(pools[1], last, 0)
        weights = parameters[number].detach().double().numpy()
        gradients = mean[:, start:stop].reshape(-1, *shape)
        found.append(matrix_written_out(weights, gradients, left, right, switches=switches))
    return found


def apart(kind: Any, gradients_SRP: torch.Tensor, expected: list[np.ndarray]) -> float:
    """Return how far the layers' matrices are from what is written out, at most, over how far they went."""
    weights = torch.stack(driven(kind, gradients_SRP, RATE)).numpy()
    model = make_model(SMALL)
    bounds = KIND(make_task(size=SMALL), make_comm()).flat.bounds
    parameters, far = list(model.parameters()), 0.0
    for number, matrix in zip(matrices_of(model), expected, strict=True):
        start, stop = bounds[number]
        of_ranks = weights[:, :, start:stop].reshape(*weights.shape[:2], *parameters[number].shape)
        way = np.abs(matrix[-1] - parameters[number].detach().numpy()).max()
        far = max(far, float(np.abs(of_ranks - matrix[:, None]).max() / way))
    return far


class KeepsItsPast(Side):
    """Partners of what was switched go on with their moments."""

    def forget(self, rows: torch.Tensor, still: int) -> None:
        """Only let them stand still."""
        self.still[rows] = still


class GoesOn(Side):
    """Partners of what was switched do not stand still."""

    def forget(self, rows: torch.Tensor, still: int) -> None:
        """Forget the past alone."""
        super().forget(rows, 0)


class LosesTheDifference(Factors):
    """The matrix becomes the product of what was switched in."""

    def switch(self, count: int, still: int) -> None:
        """Let the matrix move with the switch."""
        self.matrix.addmm_(self.left.vectors.T, self.right.vectors, alpha=-self.scale)
        super().switch(count, still)
        self.matrix.addmm_(self.left.vectors.T, self.right.vectors, alpha=self.scale)


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(3, marks=pytest.mark.full)])
def test_steps_are_those_of_factors_written_out(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = moves_of(STEPS, ranks)
    expected = written_out(gradients)
    assert apart(KIND, gradients, expected) < 1e-3
    for name, wrong in (("Side", KeepsItsPast), ("Side", GoesOn), ("Factors", LosesTheDifference)):
        with monkeypatch.context() as patch:
            patch.setattr(switchlora, name, wrong)
            assert apart(KIND, gradients, expected) > 0.05, wrong
    assert apart(partial(KIND, switch_every=0.0), gradients, expected) > 0.05


def test_without_switching_it_is_lora() -> None:
    gradients = moves_of(STEPS, 2)
    expected = written_out(gradients, switches=False)
    assert apart(partial(KIND, switch_every=0.0), gradients, expected) < 1e-3


def test_switching_leaves_the_matrix_and_forgets_the_partners() -> None:
    replica = KIND(make_task(size=SMALL, steps=STEPS), make_comm())
    factors = replica.factors[0]
    before = factors.matrix.clone()
    for side in (factors.left, factors.right):
        side.momentum.fill_(1.0)
        side.ages.fill_(7.0)
    old = factors.right.vectors[0].clone()
    factors.switch(1, STILL)
    assert torch.equal(factors.matrix, before)
    assert not torch.equal(factors.right.vectors[0], old)
    candidates = len(factors.right.pool)
    assert torch.equal(factors.right.pool[candidates - 4], old), "what was switched out is a candidate again"
    assert torch.equal(factors.right.vectors[0], factors.right.pool[0])
    assert factors.left.ages.tolist() == [0, 7, 7, 7] and factors.left.still.tolist() == [STILL, 0, 0, 0]
    assert factors.right.ages.tolist() == [7, 7, 0, 7] and factors.right.still.tolist() == [0, 0, STILL, 0]
    assert factors.left.momentum[0].abs().max() == 0 and factors.left.momentum[1].min() == 1


def test_all_candidates_take_their_turn_and_none_is_in_use_twice() -> None:
    factors = KIND(make_task(size=SMALL, steps=STEPS), make_comm()).factors[0]
    seen = [set(), set()]
    for _ in range(64):
        assert factors.free() >= 1
        factors.switch(1, 0)
        for found, side in zip(seen, (factors.left, factors.right), strict=True):
            chosen = side.chosen.tolist()
            assert len({*chosen}) == len(chosen)
            found.update(chosen)
    assert all(len(found) == len(factors.left.pool) for found in seen)


def test_what_stands_still_is_never_switched() -> None:
    factors = KIND(make_task(size=SMALL, steps=STEPS), make_comm()).factors[0]
    for _ in range(40):
        count = factors.free()
        for side in (factors.left, factors.right):
            rows = (int(side.place) + np.arange(count)) % len(side.chosen)
            assert not side.still[rows].any()
        if count:
            factors.switch(count, STILL)
        factors.step(0.0)


def test_switching_falls_to_three_tenths_within_a_share_of_the_run() -> None:
    kind = partial(SwitchLora, switch_every=8.0, fall=0.5)
    replica = kind(make_task(size=SMALL, steps=400), make_comm())
    drawn = [replica.switched(step, 4) for step in range(400)]
    expected = [4 / 8 * 0.3 ** ((step + 1) / 200) for step in range(400)]
    assert sum(drawn[:200]) == pytest.approx(sum(expected[:200]), abs=3 * sum(expected) ** 0.5)
    assert sum(drawn[200:]) == pytest.approx(sum(expected[200:]), abs=3 * sum(expected) ** 0.5)
    assert sum(drawn[200:]) < 0.6 * sum(drawn[:200])


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (64, 256), (256, 64)])
def test_a_product_begins_as_large_as_a_linear_layer(rows: int, columns: int) -> None:
    rank = 16
    left, right = starts(rows, columns, rank)
    assert (left * right) ** 2 / rank == pytest.approx(1 / (3 * columns)), "variance of an element of B·A/r"
    assert left / right == pytest.approx((columns / rows) ** 0.25)
