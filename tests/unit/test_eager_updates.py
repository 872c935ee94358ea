"""Outer steps that are a round late, against their formulas written out; wrong ones are seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from paceline.baselines.training.delayed_diloco import DelayedDiLoCo
from paceline.baselines.training.diloco import DiLoCo
from paceline.baselines.training.eager_updates import EagerUpdates
from torch import Tensor
from training_task import SMALL, make_model, moves_of, play

ROUNDS, SYNC_EVERY, RATE, SHARE = 4, 2, 0.7, 0.5
Trajectory = list[list[Tensor]]


def start() -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in make_model(SMALL).parameters()]).double()


def outer(slow: Tensor, momentum: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    momentum = SHARE * momentum + gradient
    return slow - RATE * (gradient + SHARE * momentum), momentum


def written_out(moves_TRP: Tensor, *, eager: bool) -> Trajectory:
    """Return each rank's weights after every round, and after the end; moves are those of whole rounds."""
    rounds, ranks, _ = moves_TRP.shape
    slow, momentum = [start()] * ranks, [torch.zeros_like(start())] * ranks
    late: list[Tensor] | None = None
    found = []
    for number in range(rounds + 1):
        fresh = [-moves_TRP[number, r] for r in range(ranks)] if number < rounds else None
        for r in range(ranks):
            others = (
                sum((late[o] for o in range(ranks) if o != r), torch.zeros_like(start())) if late else 0.0
            )
            if eager and fresh:
                slow[r], momentum[r] = outer(slow[r], momentum[r], (fresh[r] + others) / ranks)
            elif eager:
                slow[r] = slow[r] - RATE * (1 + SHARE) * others / ranks
            elif late:
                slow[r], momentum[r] = outer(slow[r], momentum[r], sum(late) / ranks)
        found.append(list(slow))
        late = fresh
    return found


def apart(kind: Callable[..., Any], moves_SRP: Tensor, expected: Trajectory) -> float:
    """Return how far shipped weights are from what is written out, at most, over how far those have moved."""
    options = {"sync_every": SYNC_EVERY, "outer_rate": RATE, "outer_momentum": SHARE}
    played, most = play(partial(kind, **options), moves_SRP), 0.0
    for number, states in enumerate(expected):
        _, shipped = played[(number + 1) * SYNC_EVERY - 1 if number < ROUNDS else -1]
        for mine, theirs in zip(shipped, states, strict=True):
            moved = (theirs - start()).norm().clamp(min=1e-3)
            most = max(most, float((mine.double() - theirs).norm() / moved))
    return most


class ForgetsWhatItApplied(EagerUpdates):
    """Applies its own displacement twice: at once, and again in the mean."""

    def step_outer(self, fresh: Tensor | None) -> None:
        """Forget."""
        self.applied.zero_()
        super().step_outer(fresh)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_outer_steps_take_the_own_share_at_once_and_the_others_late(ranks: int) -> None:
    moves = moves_of(ROUNDS * SYNC_EVERY, ranks)
    whole = moves.double().view(ROUNDS, SYNC_EVERY, ranks, -1).sum(dim=1)
    eager, late = written_out(whole, eager=True), written_out(whole, eager=False)
    assert apart(EagerUpdates, moves, eager) < 1e-4
    assert apart(DelayedDiLoCo, moves, late) < 1e-4
    for wrong, right in (
        (DelayedDiLoCo, eager),
        (ForgetsWhatItApplied, eager),
        (DiLoCo, eager),
        (EagerUpdates, late),
    ):
        assert apart(wrong, moves, right) > 0.05


def test_on_one_rank_it_is_diloco() -> None:
    moves = moves_of(ROUNDS * SYNC_EVERY, 1)
    options = {"sync_every": SYNC_EVERY, "outer_rate": RATE, "outer_momentum": SHARE}
    ours, theirs = (play(partial(kind, **options), moves) for kind in (EagerUpdates, DiLoCo))
    for (_, mine), (_, other) in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine[0], other[0], rtol=1e-5, atol=1e-7)
