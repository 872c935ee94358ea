"""Local Adam and MT-DAO against their formulas written out in NumPy; wrong ones are seen."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from paceline.baselines.training.local_adam import LocalAdam
from paceline.baselines.training.mt_dao import MtDao
from torch import Tensor
from training_task import SMALL, driven, make_comm, make_model, make_task, moves_of

from paceline.families.training.api.replica import BETAS

STEPS, SYNC_EVERY, RATE = 7, 3, 0.01


def played(kind: Any, gradients_SRP: Tensor) -> list[np.ndarray]:
    """Return all ranks' weights after each step, (ranks, P), where gradients are as told."""
    return [weights.numpy() for weights in driven(kind, gradients_SRP, RATE)]


def written_out(gradients_SRP: Tensor, *, beta: float, omega: float) -> list[np.ndarray]:
    """Return the same by the formulas, in float64."""
    gradients = gradients_SRP.double().numpy()
    steps, ranks, count = gradients.shape
    start = torch.cat([p.detach().reshape(-1) for p in make_model(SMALL).parameters()]).double().numpy()
    theta, u, v = np.tile(start, (ranks, 1)), np.zeros((ranks, count)), np.zeros((ranks, count))
    found = []
    for step in range(steps):
        g, t = gradients[step], step + 1
        u, v = beta * u + (1 - beta) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g
        direction = (1 - omega) * g + omega * u / (1 - beta**t)
        theta = theta - RATE * direction / (np.sqrt(v / (1 - BETAS[1] ** t)) + 1e-8)
        if t % SYNC_EVERY == 0 or t == steps:
            theta, u, v = (np.tile(x.mean(0), (ranks, 1)) for x in (theta, u, v))
        found.append(theta)
    return found


def apart(kind: Any, gradients: Tensor, expected: list[np.ndarray]) -> float:
    """Return how far weights are from what is written out, at most, in steps of Adam."""
    mine = played(partial(kind, sync_every=SYNC_EVERY), gradients)
    return max(float(np.abs(a - b).max()) / RATE for a, b in zip(mine, expected, strict=True))


class KeepsMomenta(LocalAdam):
    """Averages parameters alone."""

    def exchange_parameters(self, step: int) -> None:
        """Forget the moments."""
        kept = self.momentum.clone(), self.variance.clone()
        super().exchange_parameters(step)
        self.momentum.copy_(kept[0])
        self.variance.copy_(kept[1])


class KeepsItsBias(MtDao):
    """Takes the slow momentum as it is, a thousandth of a gradient at first."""

    def direction(self, gradient: Tensor, step: int) -> Tensor:
        """Mix without correction."""
        return self.momentum * self.omega + gradient * (1 - self.omega)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_steps_and_averages_are_those_of_the_formulas(ranks: int) -> None:
    gradients = moves_of(STEPS, ranks)
    fast = written_out(gradients, beta=BETAS[0], omega=1.0)
    slow = written_out(gradients, beta=0.999, omega=0.9)
    assert apart(LocalAdam, gradients, fast) < 1e-2
    assert apart(MtDao, gradients, slow) < 1e-2
    wrong = [(LocalAdam, slow), (MtDao, fast), (KeepsItsBias, slow)]
    for kind, right in wrong + ([(KeepsMomenta, fast)] if ranks > 1 else []):
        assert apart(kind, gradients, right) > 0.1


def test_with_adams_momentum_alone_it_is_local_adam() -> None:
    gradients = moves_of(STEPS, 2)
    ours, theirs = (
        played(partial(kind, sync_every=SYNC_EVERY, **options), gradients)
        for kind, options in ((MtDao, {"beta": BETAS[0], "omega": 1.0}), (LocalAdam, {}))
    )
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_on_one_rank_local_adam_is_pytorchs() -> None:
    gradients = moves_of(STEPS, 1)
    (mine,) = (played(partial(LocalAdam, sync_every=SYNC_EVERY), gradients)[-1],)
    task = make_task(size=SMALL, steps=STEPS)
    vector = torch.nn.Parameter(torch.cat([p.detach().reshape(-1) for p in task.model.parameters()]))
    optimizer = task.optimizer([vector])
    optimizer.param_groups[0]["lr"] = RATE
    for step in range(STEPS):
        vector.grad = gradients[step, 0].clone()
        optimizer.step()
    torch.testing.assert_close(torch.from_numpy(mine[0]), vector.detach(), rtol=0, atol=1e-2 * RATE)


def test_it_asks_for_adam() -> None:
    with pytest.raises(Exception, match="asks for sgd"):
        LocalAdam(make_task(size=SMALL, optimizer_name="sgd"), make_comm())
