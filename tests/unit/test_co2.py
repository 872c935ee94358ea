"""CO2's outer steps, against the formulas of its header written out for one rank and a vector."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from paceline.baselines.training.co2 import CO2
from torch import Tensor
from training_task import make_comm, make_task, on_ranks

STEPS, SYNC_EVERY = 8, 2
RATE, SHARE = 0.7, 0.3


def written_out(begin: Tensor, moves: list[Tensor], *, penalty: str, clip: float) -> list[Tensor]:
    """Return the global weights after each round's end, and after the last outer step."""
    slow, momentum, late = begin.clone(), torch.zeros_like(begin), None
    gaps: list[float] = []
    found = []
    for move in [*moves, None]:
        start = slow
        if late is not None:
            limit = clip * float(late.square().mean().sqrt())
            outer = late
            if penalty != "none" and gaps:
                gap = (RATE * momentum).abs()
                outer = late / (
                    1 + (gap if penalty == "by element" else gap.mean()) / (sum(gaps) / len(gaps))
                )
            momentum = (SHARE * momentum + outer).clamp(-limit, limit)
            slow = slow - RATE * momentum
            gaps.append(RATE * float(momentum.abs().mean()))
        late = None if move is None else -move
        found.append(slow)
        assert start is not None
    return found


@pytest.mark.parametrize("penalty", ["by element", "even", "none"])
@pytest.mark.parametrize("clip", [10.0, 0.8])
def test_outer_steps_are_one_round_late_penalised_and_clipped(penalty: str, clip: float) -> None:
    task = make_task(optimizer_name="sgd", steps=STEPS)
    replica = CO2(
        task,
        make_comm(),
        sync_every=SYNC_EVERY,
        outer_rate=RATE,
        outer_momentum=SHARE,
        penalty=penalty != "none",
        by_element=penalty == "by element",
        clip=clip,
    )
    begin = replica.slow.clone()
    generator = torch.Generator().manual_seed(5)
    moves = [torch.randn(begin.shape, generator=generator) * 0.01 for _ in range(STEPS // SYNC_EVERY)]
    expected = written_out(begin, moves, penalty=penalty, clip=clip)
    for step in range(STEPS):
        if step % SYNC_EVERY == 0:
            torch.testing.assert_close(replica.flat.values, replica.slow, rtol=0, atol=0)
        replica.flat.values.add_(moves[step // SYNC_EVERY], alpha=1 / SYNC_EVERY)  # what local steps would do
        replica.exchange_parameters(step)
        if step % SYNC_EVERY == SYNC_EVERY - 1:
            torch.testing.assert_close(replica.slow, expected[step // SYNC_EVERY], rtol=1e-5, atol=1e-7)
    assert torch.equal(expected[0], begin), "nothing has arrived when the first round ends"
    replica.finish()
    torch.testing.assert_close(replica.slow, expected[-1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("ranks", "sync_every", "expected"),
    [
        (2, 8, [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]),
        (4, 8, [0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1]),
        (4, 4, [0, 0, 0, 1, 1, 2, 1, 2, 1, 2, 1, 2]),
    ],
)
def test_messages_of_an_exchange_are_spread_over_the_round_that_hides_it(
    ranks: int, sync_every: int, expected: list[int]
) -> None:
    """One sets out when a round ends, and the others in equal parts of the next: none is due before its time."""

    def run(replica: object) -> list[int]:
        assert isinstance(replica, CO2)
        sent = [0]
        for step in range(len(expected)):
            replica.exchange_parameters(step)
            sent.append(sum(replica.comm.counters.sent_messages))
        replica.pause()
        return [after - before for before, after in pairwise(sent)]

    done = on_ranks(lambda task, comm: CO2(task, comm, sync_every=sync_every), ranks, run)
    assert [found for _, found in done] == [expected] * ranks
