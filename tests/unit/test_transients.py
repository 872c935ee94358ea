"""What a step makes is counted while it lives, whoever keeps it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from paceline.baselines.training.gpipe import GPipe
from paceline.baselines.training.one_f_one_b import OneFOneB
from training_task import on_ranks

from paceline.families.training.api.pipeline.executor import PipelineReplica
from paceline.families.training.api.replica import Comm, Replica, Task
from paceline.families.training.core.memory.transients import Transients

SIZE = 4 * 1000
SEQUENCES = torch.randint(64, (16, 13), generator=torch.Generator().manual_seed(4))


def test_what_autograd_keeps_is_alive_and_what_nobody_keeps_is_not() -> None:
    weight = torch.nn.Parameter(torch.ones(1000))
    with Transients() as counted:
        doubled = weight * 2
        raised = doubled.exp()  # autograd keeps it for its own backward
        assert counted.peak_bytes == 2 * SIZE
        del doubled
        total = raised.sum()
        del raised
        again = weight + 1
        assert counted.peak_bytes == 2 * SIZE + 4
        del again
        torch.autograd.backward(total)
    assert weight.grad is not None
    assert counted.peak_bytes <= 3 * SIZE + 8


def test_views_and_operations_in_place_make_nothing() -> None:
    kept = torch.ones(1000)
    with Transients() as counted:
        kept.view(10, 100).t().add_(1)
        kept[3:7].zero_()
    assert counted.peak_bytes == 0


def test_what_is_emptied_between_steps_counts_once_while_it_is_filled() -> None:
    kept, held = torch.ones(1000), torch.ones(1000)
    view, storage = kept[:10], kept.untyped_storage()
    storage.resize_(0)
    counted = Transients()
    counted.look_at([storage, view.untyped_storage(), held.untyped_storage()])
    with counted:
        held.add_(1)
        assert counted.peak_bytes == 0
        storage.resize_(SIZE)
        kept.zero_()
        held.exp()
        storage.resize_(0)
        held.exp()
    assert counted.peak_bytes == 2 * SIZE


def step(kind: Callable[[Task, Comm], Replica], *, ranks: int = 2) -> list[tuple[int, list[torch.Tensor]]]:
    """Return for each rank the most that forward and backward had made, and its gradients."""

    def run(replica: Replica) -> tuple[int, list[torch.Tensor]]:
        with Transients() as counted:
            replica.forward_backward(SEQUENCES)
        assert isinstance(replica, PipelineReplica)
        gradients = [p.grad for p in replica.own.values() if p.grad is not None]
        assert len(gradients) == len(replica.own)
        return counted.peak_bytes, gradients

    found = on_ranks(kind, ranks, run, size="deep", context=12, batch=16, microbatches=8)
    return [result for _, result in found]


@pytest.fixture(scope="module")
def plain() -> list[tuple[int, list[torch.Tensor]]]:
    return step(GPipe)


def test_recomputation_needs_less_and_finds_the_same_gradients(
    plain: list[tuple[int, list[torch.Tensor]]],
) -> None:
    again = step(lambda task, comm: GPipe(task, comm, recompute=True))
    for (most, gradients), (less, same) in zip(plain, again, strict=True):
        assert less < most / 2
        assert all(torch.equal(a, b) for a, b in zip(gradients, same, strict=True))


def test_a_schedule_that_goes_back_early_needs_less(plain: list[tuple[int, list[torch.Tensor]]]) -> None:
    early = step(OneFOneB)
    assert all(less < most / 2 for (most, _), (less, _) in zip(plain, early, strict=True))
