"""Gossip and a single merge, against means of pairs written out; wrong ones are seen."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from paceline.baselines.training.gossip_sgd import GossipSgd
from paceline.baselines.training.local_sgd import LocalSgd
from paceline.baselines.training.single_merge import SingleMerge
from torch import Tensor
from training_task import SMALL, make_model, moves_of, play

from paceline.families.training.api.pairs import partners

STEPS, SYNC_EVERY, SEED = 7, 2, 3


def written_out(moves_SRP: Tensor, *, merge: bool) -> list[Tensor]:
    """Return all ranks' weights after each step, (ranks, P), in float64."""
    steps, ranks, _ = moves_SRP.shape
    start = torch.cat([p.detach().reshape(-1) for p in make_model(SMALL).parameters()]).double()
    weights, found = start.repeat(ranks, 1), []
    for step in range(steps):
        weights = weights + moves_SRP[step].double()
        if step + 1 == steps and merge:
            weights = weights.mean(0, keepdim=True).repeat(ranks, 1)
        elif (step + 1) % SYNC_EVERY == 0 or step + 1 == steps:
            pairs = partners(SEED, step // SYNC_EVERY, range(ranks))
            weights = torch.stack(
                [(weights[r] + weights[pairs[r]]) / 2 if r in pairs else weights[r] for r in range(ranks)]
            )
        found.append(weights)
    return found


def apart(kind: Any, moves: Tensor, expected: list[Tensor]) -> float:
    """Return the largest difference of an element, over a step's length of 0.01."""
    mine = play(partial(kind, sync_every=SYNC_EVERY), moves)[: len(expected)]
    return max(
        float((torch.stack(own).double() - b).abs().max()) / 0.01
        for (own, _), b in zip(mine, expected, strict=True)
    )


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_pairs_average_and_all_do_once_at_the_end(ranks: int) -> None:
    moves = moves_of(STEPS, ranks)
    merged, apart_still = written_out(moves, merge=True), written_out(moves, merge=False)
    assert apart(SingleMerge, moves, merged) < 1e-3
    assert apart(GossipSgd, moves, apart_still) < 1e-3
    if ranks > 2:  # of two ranks a pair is all
        for wrong, right in ((GossipSgd, merged), (SingleMerge, apart_still), (LocalSgd, merged)):
            assert apart(wrong, moves, right) > 0.1


def test_every_rank_draws_the_same_pairs_and_an_odd_one_sits_out() -> None:
    for number in range(50):
        pairs = partners(SEED, number, range(5))
        assert len(pairs) == 4 and all(pairs[pairs[rank]] == rank != pairs[rank] for rank in pairs)
    assert len({tuple(sorted(partners(SEED, n, range(4)).items())) for n in range(50)}) == 3
