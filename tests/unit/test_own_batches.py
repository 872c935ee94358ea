"""A user's data: whose batches a rank reads, what is held out, and what is said of data that cannot be trained on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from paceline.families.training.core.own.data import OwnData, digest_of
from paceline.families.training.core.own.loading import Named
from paceline.worker.ranks.session import CaseError

SEED = 7


def data_of(factory: Callable[..., Any], *, world_size: int = 2, batch_size: int = 8) -> OwnData:
    named = Named(key="data", text="net.py:data", object=factory, folder=Path("/suite"), files=Path("/none"))
    return OwnData(named, world_size=world_size, batch_size=batch_size)


def numbers(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count), 10 * torch.arange(count))


def counting(rank: int, world_size: int, batch_size: int, split: str) -> Iterator[Tensor]:
    """Yield the numbers of a rank's samples, from 1000 on for those that are held out."""
    first = 1000 if split == "held_out" else 0
    while True:
        yield first + rank + world_size * torch.arange(batch_size)
        first += world_size * batch_size


def test_a_loaders_batches_are_its_ranks_and_the_whole_batch_is_all_of_theirs() -> None:
    data = data_of(counting)
    assert data.rank_batch(SEED, 1, 1).content.tolist() == [9, 11, 13, 15]
    assert data.whole_batch(SEED, 1).content.tolist() == list(range(8, 16))
    assert data.held_out(SEED, 6).content.tolist() == [1000 + i for i in range(6)]


def test_a_rank_asks_for_its_samples_of_a_whole_batch_by_the_same_numbers() -> None:
    whole, own = data_of(counting).whole_batch(SEED, 2), data_of(counting).rank_batch(SEED, 2, 1)
    part = whole[list(range(1, 8, 2))]
    assert torch.equal(part.content, own.content)
    assert torch.equal(part.seeds, own.seeds)  # random numbers that one process draws are the rank's


def test_a_datasets_samples_are_read_once_in_a_pass_and_every_tenth_never() -> None:
    data = data_of(lambda: numbers(89))  # 80 of them are trained on
    steps = [data.whole_batch(SEED, step) for step in range(20)]
    for epoch in (steps[:10], steps[10:]):
        read = sorted(i for batch in epoch for i in batch.content[0].tolist())
        assert read == [i for i in range(89) if i % 10]
    assert not torch.equal(steps[0].content[0], steps[10].content[0])
    assert all(torch.equal(10 * batch.content[0], batch.content[1]) for batch in steps)
    assert data.held_out(SEED, 9).content[0].tolist() == list(range(0, 89, 10))


def test_ranks_read_different_samples_of_a_dataset_and_other_seeds_other_orders() -> None:
    data = data_of(lambda: numbers(100))
    mine, theirs = (set(data.rank_batch(SEED, 0, rank).content[0].tolist()) for rank in (0, 1))
    assert len(mine | theirs) == 8
    assert set(data.rank_batch(SEED + 1, 0, 0).content[0].tolist()) != mine


def test_a_factory_that_takes_the_split_says_itself_what_is_held_out() -> None:
    data = data_of(lambda split: numbers(20 if split == "train" else 5))
    read = {i for step in range(2) for i in data.whole_batch(SEED, step).content[0].tolist()}
    assert len(read) == 16
    assert data.held_out(SEED, 5).content[0].tolist() == list(range(5))


def test_a_loader_that_ends_begins_another_pass_in_another_order() -> None:
    def loader(rank: int, world_size: int, batch_size: int, seed: int, split: str) -> DataLoader[Any]:
        sampler = DistributedSampler(numbers(32), world_size, rank, seed=seed)
        return DataLoader(numbers(32), batch_size, sampler=sampler)

    data = data_of(loader)
    first, second = (
        [data.rank_batch(SEED, i + 4 * k, 0).content[0].tolist() for i in range(4)] for k in (0, 1)
    )
    assert [sorted(batch) for batch in first] != first
    assert first != second


def test_samples_of_an_iterable_dataset_become_batches() -> None:
    class Endless(IterableDataset[Tensor]):
        def __iter__(self) -> Iterator[Tensor]:
            number = 0
            while True:
                yield torch.tensor([number])
                number += 1

    def source(split: str) -> Endless:
        return Endless()

    assert data_of(source).rank_batch(SEED, 1, 0).content.tolist() == [[4], [5], [6], [7]]


def test_lists_are_tuples_and_arrays_are_tensors_and_mappings_stay() -> None:
    def batches(batch_size: int, split: str) -> Iterator[Any]:
        while True:
            yield {"x": torch.zeros(batch_size, 2).numpy(), "y": [torch.ones(batch_size)]}

    content = data_of(batches).rank_batch(SEED, 0, 0).content
    assert isinstance(content["x"], Tensor)
    assert isinstance(content["y"], tuple)


@pytest.mark.parametrize("lazily", [True, False])
def test_random_numbers_of_the_process_are_the_same_for_the_same_seed_and_left_as_they_were(
    lazily: bool,
) -> None:
    def drawing(split: str, batch_size: int) -> Iterator[Tensor]:
        while True:
            yield torch.randn(batch_size) + random.random() + np.random.rand()

    class Noisy(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            return torch.randn(3) + random.random()

    def data() -> OwnData:
        return data_of(drawing if lazily else lambda: Noisy(torch.zeros(90)))

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, again = data(), data()
    again.rank_batch(SEED, 0, 0)
    torch.randn(5)  # what others draw meanwhile changes nothing
    assert torch.equal(first.rank_batch(SEED, 1, 1).content, again.rank_batch(SEED, 1, 1).content)
    assert not torch.equal(first.rank_batch(SEED, 1, 0).content, first.rank_batch(SEED, 1, 1).content)
    torch.manual_seed(1)
    data().rank_batch(SEED, 2, 0)
    assert torch.equal(before, torch.get_rng_state())


def few(split: str, batch_size: int) -> Iterator[Tensor]:
    for _ in range(3):
        yield torch.zeros(batch_size)


def growing(split: str, batch_size: int) -> Iterator[Tensor]:
    for number in range(99):
        yield torch.zeros(batch_size, 1 + number)


def failing(split: str, batch_size: int) -> Iterator[Tensor]:
    yield torch.zeros(batch_size)
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (few, "data: net.py:data ended before batch 4 of rank 0; expected: as many batches as steps"),
        (growing, r"gave samples float32\[2\] in batch 2 of rank 0, and float32\[1\] before"),
        (failing, "was asked for batch 2 of rank 0 and raised OSError: the disk is gone"),
        (
            lambda split: iter([torch.zeros(5)]),
            "gave 5 samples in batch 1 of rank 0; expected: 4, which is batch 8",
        ),
        (
            lambda split: iter(["text"]),
            "gave an object of type str in batch 1 of rank 0; expected: batches: a tensor",
        ),
        (lambda split: iter([torch.tensor(1.0)]), "gave an object of type Tensor in batch 1 of rank 0"),
        (lambda split: iter([()]), "gave nothing in batch 1 of rank 0"),
        (
            lambda split: iter([(torch.zeros(4), torch.zeros(3))]),
            "gave tensors of 3 and 4 samples in batch 1",
        ),
        (lambda: 7, "returned an object of type int; expected: an iterable of batches"),
        (lambda: torch.zeros(100), "returned an object of type Tensor; expected: an iterable of batches"),
        (lambda: numbers(5), "has 4 samples to train on; expected: a step of them or more, batch 8"),
        (lambda path: numbers(5), "wants the argument 'path'; expected: none but rank, world_size, seed"),
    ],
)
def test_data_that_cannot_be_trained_on_is_named_with_what_was_expected(
    factory: Callable[..., Any], said: str
) -> None:
    data = data_of(factory)
    with pytest.raises(CaseError, match=said) as refused:
        for step in range(9):
            data.rank_batch(SEED, step, 0)
    assert refused.value.status == "invalid"


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (lambda: iter([torch.zeros(8)]), "returns a loader and does not take 'split'"),
        (lambda: numbers(89), "holds 9 samples out; expected: eval_batch of them, 10; or eval_batch: 9"),
        (few, r"ended before held-out sample 7 of 10 \(eval_batch\)"),
    ],
)
def test_nothing_is_judged_on_what_may_have_been_trained_on(factory: Callable[..., Any], said: str) -> None:
    data = data_of(factory if factory is not few else lambda split: (torch.zeros(2) for _ in range(3)))
    with pytest.raises(CaseError, match=said):
        data.held_out(SEED, 10)


def test_a_digest_tells_contents_apart() -> None:
    one, other = (data_of(counting).whole_batch(SEED, step) for step in (0, 1))
    assert digest_of(one) == digest_of(one[slice(None)]) != digest_of(other)
