"""Who takes part when, what rings send meanwhile, and when a rank has caught up."""

from __future__ import annotations

import pytest
import torch
from paceline.baselines.training.noloco import cost
from torch import Tensor
from training_task import make_task

from paceline.families.training.api.absence import Absence, ring_bytes
from paceline.families.training.api.exchange import ring_cost
from paceline.families.training.ops.data_parallel.returning import PATIENCE, Return

AWAY = Absence(rank=2, first=4, last=8)


def test_the_last_rank_is_away_in_the_middle_third() -> None:
    absence = Absence.of_last(4, 90)
    assert (absence.rank, absence.first, absence.last) == (3, 30, 60)
    assert [absence.members(step, 4) for step in (29, 30, 59, 60)] == [
        (0, 1, 2, 3),
        (0, 1, 2),
        (0, 1, 2),
        (0, 1, 2, 3),
    ]
    assert absence.present(3, range(20, 40)) == 10
    assert absence.present(0, range(20, 40)) == 20
    assert [step for step in range(90) if absence.changes(step)] == [30, 60]


def test_without_an_absence_rings_send_what_they_always_do() -> None:
    sent, messages = ring_cost(1001, 3)
    found = ring_bytes(world_size=3, steps=10, exchanges=range(10), count=1001, absence=None)
    assert found == (10 * sent, sent, 10 * messages)


def test_a_smaller_ring_sends_less_and_a_welcome_more() -> None:
    found = ring_bytes(
        world_size=3,
        steps=12,
        exchanges=range(12),
        count=600,
        absence=AWAY,
        welcome_bytes=5000,
        welcome_messages=2,
    )
    with_all, with_two = 4 * 600 * 4 // 3, 4 * 600
    assert found == (8 * with_all + 4 * with_two + 5000, with_all + 5000, 8 * 4 + 4 * 2 + 2)


def test_partners_are_drawn_among_those_who_are_there() -> None:
    task = make_task(rank=0, world_size=3, steps=12, absence=AWAY)
    everyone = make_task(rank=0, world_size=3, steps=12)
    assert cost(task, sync_every=2).messages >= cost(everyone, sync_every=2).messages > 0


class Ranks:
    """Three ranks of which the control plane knows the weights."""

    def __init__(self, others: list[float], own: float) -> None:
        self.values = [*others, own]
        self.world_size, self.rank, self.control = 3, 2, self

    def sum_in_place(self, tensor: Tensor) -> None:
        tensor.fill_(sum(self.values))

    def gather(self, rows: list[list[float]]) -> list[list[list[float]]]:
        return [[[0.0]], [[0.0]], rows]  # type: ignore[list-item]  # of others nothing is read


def test_a_rank_has_caught_up_when_it_is_as_near_as_it_used_to_be() -> None:
    ranks = Ranks([1.0, 1.0], 1.1)
    back = Return(ranks, AWAY, lambda: [torch.tensor([ranks.values[2]])])  # type: ignore[arg-type]
    for step in range(AWAY.first):
        back.look(step)
    assert back.usual == pytest.approx(1.1 / (3.1 / 3) - 1, rel=1e-5)
    ranks.values[2] = 2.0
    back.look(AWAY.last)
    back.look(AWAY.last + 1)
    assert back.steps is None
    ranks.values[2] = 1.05
    back.look(AWAY.last + 2)
    assert back.steps == 3


def test_nobody_is_waited_for_without_end() -> None:
    ranks = Ranks([1.0, 1.0], 5.0)
    back = Return(ranks, AWAY, lambda: [torch.tensor([ranks.values[2]])])  # type: ignore[arg-type]
    back.look(AWAY.last)
    ranks.values[2] = 1.0
    back.look(AWAY.last + PATIENCE)
    assert back.steps is None
