"""Hierarchical ZeRO: who keeps and owns what, and what leaves a group of ranks."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from paceline.baselines.training.hierarchical_zero import HierarchicalZero, cost, part_bounds
from paceline.baselines.training.zero_3 import Zero3
from training_task import SMALL, make_task, on_ranks

COUNTS = (1, 2, 7, 64, 7248)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("ranks", "group"), [(1, 1), (2, 1), (2, 2), (4, 2), (6, 3), (8, 4)])
def test_rows_and_parts_cover_every_element_once(count: int, ranks: int, group: int) -> None:
    rows, parts = part_bounds(count, ranks, group)
    assert [at for row in rows for at in range(*row)] == list(range(count))
    assert sorted(at for part in parts for at in range(*part)) == list(range(count))
    for rank, (start, stop) in enumerate(parts):
        low, high = rows[rank % group]
        assert low <= start <= stop <= high, "a rank owns a part of the row that it keeps"


def trained(kind: Any, ranks: int, steps: int = 3) -> list[tuple[Any, list[torch.Tensor]]]:
    """Return every rank's replica after some steps on batches of its own, and all weights made whole."""

    def run(replica: Any) -> list[torch.Tensor]:
        for step in range(steps):
            rng = torch.Generator().manual_seed(100 * step + replica.comm.rank)
            replica.set_rate(0.01)
            replica.forward_backward(torch.randint(0, 64, (2, 17), generator=rng))
            replica.exchange_gradients(step)
            replica.update(step)
            replica.exchange_parameters(step)
        found = []
        for unit in replica.units:
            replica.gather(unit)
            found += [p.detach().clone() for p in unit.parameters]
            unit.free()
        return found

    return on_ranks(kind, ranks, run, size=SMALL, steps=steps)


@pytest.mark.parametrize(("ranks", "group"), [(2, 2), (4, 2), (4, 1), (4, 4), (6, 3)])
def test_it_trains_as_zero_3_does(ranks: int, group: int) -> None:
    ours, theirs = trained(partial(HierarchicalZero, group=group), ranks), trained(Zero3, ranks)
    for (_, mine), (_, other) in zip(ours, theirs, strict=True):
        for a, b in zip(mine, other, strict=True):
            # Sums have another order; Adam's first steps make much of the last bits of small gradients.
            assert float((a - b).abs().max()) < 2e-3
    for _, mine in ours[1:]:
        assert all(torch.equal(a, b) for a, b in zip(mine, ours[0][1], strict=True))


def test_a_rank_whose_rows_are_not_refreshed_trains_otherwise() -> None:
    class Stale(HierarchicalZero):
        def exchange_parameters(self, step: int) -> None:
            """Leave other groups' parts as they were."""

    stale, right = trained(partial(Stale, group=2), 4), trained(partial(HierarchicalZero, group=2), 4)
    apart = max(float((a - b).abs().max()) for a, b in zip(stale[0][1], right[0][1], strict=True))
    assert apart > 5e-3


def test_what_leaves_a_group_is_gradients_and_updates_of_a_row() -> None:
    ranks, group, steps = 4, 2, 3
    crossed = 0
    for rank, (replica, _) in enumerate(trained(partial(HierarchicalZero, group=group), ranks, steps)):
        sent = replica.comm.counters.sent_bytes
        crossed += sum(count for to, count in enumerate(sent) if to // group != rank // group)
    count = make_task(size=SMALL).num_parameters
    # Of a row of P/2 elements half travels each way between two groups, twice a step.
    assert crossed == pytest.approx(steps * ranks * 2 * 4 * count / 4, rel=0.01)


@pytest.mark.parametrize("group", [1, 2, 4])
def test_state_is_what_the_header_says(group: int) -> None:
    task = make_task(size="tiny", world_size=4)
    # 4P/g of weights, 12P/n of gradients and moments
    found = cost(task, group=group).state_bytes
    assert found == pytest.approx(task.num_parameters * (4 / group + 12 / 4), rel=0.01)
