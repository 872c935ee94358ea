"""Schemes of averaging: all leave the mean, each by messages of its own; those that do not are refused."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from paceline.baselines.training.scheme_averaging import SchemeAveraging, blocks_of, cost, neighbours
from training_task import SMALL, make_task, moves_of, on_ranks, play

from paceline.base.techniques.technique import UnsupportedError
from paceline.families.training.api.replica import Replica

SCHEMES = (
    "reduce star | broadcast star",
    "reduce tree | broadcast tree",
    "reduce tree | broadcast star",
    "average ring",
    "average all",
)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_every_scheme_leaves_the_mean_on_all_ranks(scheme: str, ranks: int) -> None:
    moves = moves_of(4, ranks)
    begun = torch.cat([p.detach().reshape(-1) for p in make_task(size=SMALL).model.parameters()])
    found = play(partial(SchemeAveraging, scheme=scheme, sync_every=2), moves)
    mean = moves.mean(dim=1)
    for step, expected in ((1, begun + mean[:2].sum(dim=0)), (3, begun + mean.sum(dim=0))):
        own, _ = found[step]
        assert all(torch.equal(weights, own[0]) for weights in own)
        assert torch.allclose(own[0], expected, atol=1e-6)
    if ranks > 1:
        own, _ = found[0]
        assert not torch.equal(own[0], own[1]), "within a round ranks are alone"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8])
def test_the_busiest_rank_sends_what_the_formula_says(scheme: str, ranks: int) -> None:
    def run(replica: Replica) -> tuple[int, int]:
        for step in range(5):
            replica.exchange_parameters(step)
        counters = replica.comm.counters
        return sum(counters.sent_bytes), sum(counters.sent_messages)

    found = [
        sent
        for _, sent in on_ranks(
            partial(SchemeAveraging, scheme=scheme, sync_every=2), ranks, run, size=SMALL, steps=5
        )
    ]
    stated = cost(make_task(size=SMALL, world_size=ranks, steps=5), scheme=scheme, sync_every=2)
    assert max(b for b, _ in found) == stated.sent_bytes
    assert max(m for _, m in found) == stated.messages


def test_a_tree_has_two_arms_and_a_star_one_centre() -> None:
    assert [neighbours("tree", rank, 6) for rank in range(6)] == [
        (None, [1, 2]),
        (0, [3, 4]),
        (0, [5]),
        (1, []),
        (1, []),
        (2, []),
    ]
    assert neighbours("star", 0, 4) == (None, [1, 2, 3]) and neighbours("star", 3, 4) == (0, [])


@pytest.mark.parametrize(
    ("scheme", "reason"),
    [
        ("reduce moon | broadcast star", "unknown block 'reduce moon'"),
        ("", "unknown block ''"),
        ("reduce star", "does not leave all ranks the mean"),
        ("broadcast star | reduce star", "does not leave all ranks the mean"),
        ("average ring | average all", "does not leave all ranks the mean"),
    ],
)
def test_a_scheme_that_averages_nothing_is_refused(scheme: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        blocks_of(scheme)


def test_blanks_do_not_matter() -> None:
    assert blocks_of(" reduce  tree|broadcast   star ") == ["reduce tree", "broadcast star"]
