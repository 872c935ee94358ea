"""CO2's outer steps, against the formulas of its header written out for a vector: on one rank, and on several."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
import torch
from paceline.baselines.training.co2 import CO2
from torch import Tensor
from training_task import SMALL, make_comm, make_model, make_task, moves_of, on_ranks, play

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


ROUNDS = 4


def ranks_trajectory(ranks: int) -> tuple[torch.Tensor, list[Tensor]]:
    """Return what each rank's local steps do, (steps, ranks, P), and the global weights that follow, round by round."""
    moves = moves_of(ROUNDS * SYNC_EVERY, ranks)
    means = moves.double().mean(dim=1).view(ROUNDS, SYNC_EVERY, -1).sum(dim=1)
    begin = torch.cat([p.detach().reshape(-1) for p in make_model(SMALL).parameters()]).double()
    return moves, written_out(begin, list(means), penalty="by element", clip=0.8)


class SumsMoves(CO2):
    """Forgets to divide what arrives."""

    def _apply(self) -> None:
        if self.late:
            self.ring.complete()
            self.outer.mul_(self.comm.world_size)
        super()._apply()


class AppliesItsOwn(CO2):
    """Sends its displacement and applies what it knows itself."""

    def exchange_parameters(self, step: int) -> None:
        mine = self.slow - self.flat.values
        super().exchange_parameters(step)
        if step % SYNC_EVERY == SYNC_EVERY - 1:
            self.sent = mine

    def _apply(self) -> None:
        self.ring.complete()
        if self.late:
            self.outer.copy_(self.sent)
        super()._apply()


@pytest.mark.parametrize("ranks", [2, 3])
def test_what_arrives_a_round_late_is_the_mean_of_all_ranks(ranks: int) -> None:
    moves, expected = ranks_trajectory(ranks)

    def distance(kind: Callable[..., CO2]) -> float:
        """Return how far some rank's own or global weights are from the formulas', beside a round's way."""
        right = {"sync_every": SYNC_EVERY, "outer_rate": RATE, "outer_momentum": SHARE, "clip": 0.8}
        trajectory = play(partial(kind, **right), moves)
        ends = [*trajectory[SYNC_EVERY - 1 : -1 : SYNC_EVERY], trajectory[-1]]
        way = float((expected[-1] - expected[0]).norm()) / ROUNDS
        return max(
            float((weights.double() - true).norm()) / way
            for (own, shipped), true in zip(ends, expected, strict=True)
            for weights in (*own, *shipped)
        )

    assert distance(CO2) < 1e-4
    for wrong in (SumsMoves, AppliesItsOwn, partial(CO2, by_element=False), partial(CO2, penalty=False)):
        assert distance(wrong) > 0.05, wrong


@pytest.mark.parametrize("ranks", [1, 3])
def test_without_rounds_momentum_and_penalty_it_is_descent_with_gradients_that_are_one_step_old(
    ranks: int,
) -> None:
    """Why no option makes it synchronous training: the loss is a square, whose gradient is the weights' own."""
    rate, steps = 0.3, 5

    def run(replica: CO2) -> list[Tensor]:
        found = [replica.slow.double().clone()]
        for step in range(steps):
            factor = 1 + 0.1 * replica.comm.rank  # ranks have gradients of their own, whose mean is taken
            replica.flat.values.sub_(rate * factor * replica.flat.values)
            replica.exchange_parameters(step)
            found.append(replica.slow.double().clone())
        replica.pause()
        return found

    plain = {"sync_every": 1, "outer_rate": 1.0, "outer_momentum": 0.0, "penalty": False, "clip": 1e9}
    done = on_ranks(partial(CO2, **plain), ranks, run, size=SMALL, steps=steps, optimizer_name="sgd")  # type: ignore[arg-type]
    mean = 1 + 0.1 * (ranks - 1) / 2
    for _, trajectory in done:
        torch.testing.assert_close(trajectory[1], trajectory[0], rtol=0, atol=0)
        for before, now, after in zip(trajectory, trajectory[1:], trajectory[2:], strict=False):
            torch.testing.assert_close(after, now - rate * mean * before, rtol=1e-5, atol=1e-6)
