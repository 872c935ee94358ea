"""EDiT's rounds that end by time: a slow rank leaves steps out instead of being waited for."""

from __future__ import annotations

import pytest
import torch
from paceline.baselines.training.edit import Edit, cost
from training_task import make_task, on_ranks

from paceline.families.training.api.replica import Comm, Replica, Task, UnsupportedError

SYNC_EVERY, ROUNDS = 8, 3
SEQUENCES_SBT = torch.randint(64, (SYNC_EVERY * ROUNDS, 2, 17), generator=torch.Generator().manual_seed(3))


class OwnTime(Edit):
    """Has a clock of its own: a step takes a second, or two on the slow rank."""

    seconds = 0.0

    def now(self) -> float:
        """Return its seconds."""
        return self.seconds


def train(replica: Replica) -> list[bool]:
    """Train as the family does; return in which steps the rank took part."""
    assert isinstance(replica, OwnTime)
    took = []
    for step, sequences in enumerate(SEQUENCES_SBT):
        took.append(not replica.rests(step))
        if took[-1]:
            replica.forward_backward(sequences)
            replica.seconds += 2.0 if replica.comm.rank == 1 else 1.0
            replica.update(step)
        replica.exchange_parameters(step)
    replica.finish()
    return took


def by_time(task: Task, comm: Comm) -> OwnTime:
    return OwnTime(task, comm, sync_every=SYNC_EVERY, by_time=True)


def test_a_rank_that_is_half_as_fast_takes_half_of_the_steps_once_rounds_are_timed() -> None:
    (fast, all_steps), (slow, some) = on_ranks(by_time, 2, train, steps=len(SEQUENCES_SBT), batch=4)
    assert all(all_steps)
    whole, half = [True] * SYNC_EVERY, [True] * 4 + [False] * 4
    assert some == whole + half * (ROUNDS - 1)
    assert abs(fast.seconds - ROUNDS * SYNC_EVERY) < 1e-9
    assert slow.seconds == 2 * (8 + 4 + 4)
    assert all(torch.equal(a, b) for a, b in zip(fast.weights(), slow.weights(), strict=True))


def test_what_is_sent_is_the_formula_and_one_number_a_round_more_than_without_a_clock() -> None:
    found = on_ranks(by_time, 2, train, steps=len(SEQUENCES_SBT), batch=4)
    formulas = [
        cost(make_task(world_size=2, steps=len(SEQUENCES_SBT)), sync_every=SYNC_EVERY, by_time=timed)
        for timed in (True, False)
    ]
    for replica, _ in found:
        assert sum(replica.comm.counters.sent_messages) == formulas[0].messages
        assert sum(replica.comm.counters.sent_bytes) == formulas[0].sent_bytes
    assert formulas[0].messages is not None and formulas[1].messages is not None
    assert formulas[0].messages - formulas[1].messages == ROUNDS
    assert formulas[0].sent_bytes - formulas[1].sent_bytes == 4 * ROUNDS


def test_rounds_by_time_have_two_steps_at_least() -> None:
    with pytest.raises(UnsupportedError, match="at least two steps"):
        on_one = make_task()
        Edit(on_one, None, sync_every=1, by_time=True)  # type: ignore[arg-type]  # refused before it is looked at
