"""FedKSeed's slopes and weights, against the loss and against all ranks' pairs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from paceline.baselines.training.fedkseed import FedKSeed, chosen, cost
from torch import Tensor
from training_task import SMALL, make_comm, make_model, make_task, on_ranks

from paceline.families.training.api.fine_tuning.directions import direction
from paceline.families.training.api.model import next_symbol_loss

STEPS, SYNC_EVERY, K = 7, 3, 5


def batch(step: int, rank: int) -> Tensor:
    return torch.randint(0, 64, (2, 17), generator=torch.Generator().manual_seed(100 * step + rank))


def run(replica: Any, steps: int = STEPS) -> list[tuple[Tensor, float, int]]:
    """Return after each step this rank's weights, its move and the number of its direction."""
    found = []
    for step in range(steps):
        replica.set_rate(0.01)
        replica.forward_backward(batch(step, replica.comm.rank))
        replica.exchange_gradients(step)
        replica.update(step)
        place = step % SYNC_EVERY
        told = float(replica.moves[place]), int(replica.seeds[place])
        replica.exchange_parameters(step)
        found.append((replica.flat.values.clone(), *told))
    return found


def played(ranks: int, kind: Any = FedKSeed) -> list[tuple[Any, list[tuple[Tensor, float, int]]]]:
    return on_ranks(
        partial(kind, sync_every=SYNC_EVERY, candidates=K),
        ranks,
        run,
        size=SMALL,
        steps=STEPS,
        epsilon=1e-2,
    )


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_weights_are_what_the_pairs_of_all_ranks_say(ranks: int) -> None:
    found = played(ranks)
    start = torch.cat([p.detach().reshape(-1) for p in make_model(SMALL).parameters()]).double()
    for end in (3, 6, 7):  # rounds of three, three and one
        expected = start.clone()
        for _, steps in found:
            for _, move, number in steps[:end]:
                expected -= move / ranks * direction(3, number, 0, 0, len(start)).double()
        for _, steps in found:
            assert float((steps[end - 1][0].double() - expected).abs().max()) < 1e-5
        assert all(torch.equal(steps[end - 1][0], found[0][1][end - 1][0]) for _, steps in found)
    if ranks > 1:  # inside a round each moves alone
        assert not torch.equal(found[0][1][1][0], found[1][1][1][0])


class AppliesItsExactSlopes(FedKSeed):
    """Keeps in its own weights what was lost when moves were told."""

    def build(self) -> None:
        """Build, and go a little further."""
        super().build()
        self.flat.values.add_(1e-6 * self.comm.rank)


def test_a_rank_that_keeps_more_than_it_told_is_seen() -> None:
    found = played(2, AppliesItsExactSlopes)
    assert not torch.equal(found[0][1][2][0], found[1][1][2][0])


def test_who_knows_the_numbers_knows_the_weights() -> None:
    (replica, steps), _ = played(2)
    fresh = FedKSeed(
        make_task(size=SMALL, world_size=2, epsilon=1e-2), make_comm(), sync_every=SYNC_EVERY, candidates=K
    )
    fresh.pool.copy_(replica.pool)
    fresh.build()
    assert torch.equal(fresh.flat.values, steps[-1][0])


def test_a_slope_is_that_of_the_loss() -> None:
    replica = FedKSeed(make_task(size=SMALL, epsilon=1e-3), make_comm(), candidates=K)
    before = replica.flat.values.clone()
    replica.forward_backward(batch(0, 0))
    assert torch.equal(replica.flat.values, before)
    z = direction(3, chosen(3, 0, 0, K), 0, 0, len(before))
    model = make_model(SMALL)
    loss = next_symbol_loss(model, batch(0, 0))
    loss.backward()  # type: ignore[no-untyped-call]
    gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    assert replica.slope == pytest.approx(float(gradient @ z), rel=0.05, abs=1e-2)


def test_numbers_are_drawn_evenly_and_differ_between_ranks() -> None:
    drawn = np.array([[chosen(3, step, rank, 8) for step in range(400)] for rank in range(2)])
    counts = np.bincount(drawn.reshape(-1), minlength=8)
    assert counts.min() > 60 and (drawn[0] != drawn[1]).mean() > 0.7


def test_bytes_do_not_depend_on_the_model() -> None:
    small, large = (cost(make_task(size=size, world_size=4), sync_every=20) for size in ("nano", "tiny"))
    assert small == large
    assert small.sent_bytes == 100 * 3 * 8 and small.messages == 5 * 3
