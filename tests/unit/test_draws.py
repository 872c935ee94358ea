"""What is drawn for one cannot be told from what is drawn for another, by whoever knows how seeds are made."""

from __future__ import annotations

import pytest
import torch
from kernel_operators import OPERATORS, POINTS
from torch import Tensor

from paceline.base.draws import stream_seed
from paceline.families.collectives.core import payloads
from paceline.families.kernels.spec import FAMILY

USED = 1 << 32
"""Of a generator's seed PyTorch uses what is below."""
SEED = 0x1234_5678_9ABC
RANKS = 4


def drawn(seed: int) -> Tensor:
    """Return numbers by which a generator's seed is known."""
    return torch.randn(64, generator=torch.Generator().manual_seed(seed))


def test_a_generator_uses_no_more_of_its_seed() -> None:
    # What the rest rests on: where PyTorch uses more, two seeds that agree below no longer draw the same.
    assert torch.equal(drawn(5), drawn(5 + 7 * USED))


def test_streams_of_one_seed_differ_by_nothing_that_is_known() -> None:
    seeds = [SEED + i for i in range(200)]
    for first, second in ((0, 1), (0, "all"), (1, 2)):
        differences = {(stream_seed(s, first) - stream_seed(s, second)) % USED for s in seeds}
        assert len(differences) == len(seeds)
    neighbours = {(stream_seed(s + 1, 0) - stream_seed(s, 0)) % USED for s in seeds}
    assert len(neighbours) == len(seeds)


def test_all_of_a_seed_counts_and_it_may_be_long() -> None:
    seeds = [SEED + (1 << bit) for bit in range(127)]
    assert len({stream_seed(s, 0) % USED for s in seeds}) == len(seeds)
    assert all(0 <= stream_seed(s, 0) < 1 << 63 for s in seeds)


@pytest.mark.parametrize("name", sorted(POINTS))
def test_who_knows_as_much_of_a_seed_as_a_generator_uses_does_not_know_the_draw(name: str) -> None:
    operator = OPERATORS[name]
    params = {**{p.name: p.default for p in FAMILY.parameters_for(name)}, **POINTS[name]}
    known, other = (operator.draw(params, torch.float32, seed=s).inputs for s in (SEED, SEED + 3 * USED))
    # Where groups begin follows from the point, as some single factors do.
    pairs = [(a, b) for a, b in zip(known, other, strict=True) if a.dtype != torch.int64 and a.numel() > 1]
    assert pairs
    assert not any(torch.equal(a, b) for a, b in pairs)


def test_from_its_own_input_a_rank_cannot_draw_the_others() -> None:
    def input_of(rank: int) -> Tensor:
        return payloads.draw("gaussian", 64, seed=SEED, rank=rank, world_size=RANKS, dtype=torch.float32)

    own = stream_seed(SEED, 0)
    # Its generator's seed follows from its numbers; it tries what lies around it, and it was right before.
    assert torch.equal(drawn(own % USED), input_of(0))
    near = [drawn((own + step) % USED) for step in range(-RANKS, RANKS + 1)]
    for rank in range(1, RANKS):
        assert not any(torch.equal(guess, input_of(rank)) for guess in near)
