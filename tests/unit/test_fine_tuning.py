"""Fine-tuning by slopes: the code of a byte, directions, replays, and what the harness notes of messages."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paceline.baselines.training import just_one_byte, mezo
from paceline.baselines.training.just_one_byte import JustOneByte
from paceline.baselines.training.mezo import Mezo
from training_task import JOIN_S, make_comm, make_model, make_task, on_ranks

from paceline.families.training.api.fine_tuning.directions import direction
from paceline.families.training.api.fine_tuning.probing import Entry
from paceline.families.training.api.model import next_symbol_loss
from paceline.families.training.core.data import corpus
from paceline.families.training.ops.fine_tune.ledger import Ledger, difference
from paceline.families.training.ops.fine_tune.setting import TRAINABLE

LEAST, LARGEST = 2.0**-14, 2.0**7
HALF_A_STEP = 2 ** (1 / 12) - 1
TASK: dict[str, Any] = {
    "optimizer_name": "sgd",
    "peak_rate": 0.5,
    "warmup_steps": 0,
    "steps": 6,
    "num_perturbations": 2,
    "epsilon": 0.01,
}
CODES = torch.arange(256, dtype=torch.uint8)[:, None]


def bytes_of(*slopes: float) -> list[int]:
    return just_one_byte.encode(torch.tensor(slopes, dtype=torch.float64))[:, 0].tolist()


def through(slope: float) -> float:
    return float(just_one_byte.decode(just_one_byte.encode(torch.tensor([slope], dtype=torch.float64))))


@given(st.floats(LEAST, LARGEST), st.sampled_from([-1, 1]))
def test_a_byte_keeps_the_sign_and_the_magnitude_within_half_a_step(magnitude: float, sign: int) -> None:
    found = through(sign * magnitude)
    assert math.copysign(1, found) == sign
    assert abs(abs(found) / magnitude - 1) <= HALF_A_STEP * (1 + 1e-9)
    assert HALF_A_STEP < 0.06


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_the_code_is_monotone_and_odd(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert through(low) <= through(high)
    assert through(-a) == -through(a)


def test_a_decoded_byte_is_encoded_as_itself() -> None:
    values = just_one_byte.decode(CODES)
    again = just_one_byte.encode(values)
    assert torch.equal(again[:128], CODES[:128])
    assert torch.equal(again[129:], CODES[129:])
    assert again[128] == 0, "there is one zero"
    assert bool((values[1:128].diff() > 0).all())


def test_what_is_out_of_range_is_nothing_or_the_largest() -> None:
    assert bytes_of(0.0, 1e-6, -1e-6, 1e9, -1e9) == [0, 0, 0, 127, 255]
    assert through(1e9) == LARGEST
    assert through(LEAST) == LEAST


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=5))
def test_float32_slopes_travel_unchanged(slopes: list[float]) -> None:
    replica = Mezo(make_task(**TASK), make_comm())
    values = torch.tensor(slopes, dtype=torch.float64)
    assert torch.equal(replica.decode(replica.encode(values)), values)


def test_directions_are_standard_normal_and_differ_in_every_place() -> None:
    first = direction(7, 0, 0, 0, 10_000)
    assert torch.equal(first, direction(7, 0, 0, 0, 10_000))
    assert float(first.mean()) == pytest.approx(0, abs=0.05)
    assert float(first.std()) == pytest.approx(1, abs=0.05)
    for place in [(8, 0, 0, 0), (7, 1, 0, 0), (7, 0, 1, 0), (7, 0, 0, 1)]:
        other = direction(*place, 10_000)
        assert abs(float(first @ other)) / 10_000 < 0.05
    assert torch.equal(direction(7, 3, 2, 1, 5), direction(7, 3, 2, 1, 9)[:5])


def tuned_task(**changes: Any) -> Any:
    """Return a task in which only the gains of norms are trained."""
    task = make_task(**(TASK | changes))
    for name, parameter in task.model.named_parameters():
        parameter.requires_grad_(TRAINABLE["gains"] in name)
    return task


def ledger_of(replica: Any) -> Ledger:
    sandbox: Any = SimpleNamespace(replica=replica)
    return Ledger(sandbox)


def train(replica: Any, steps: range) -> list[Entry]:
    """Take steps on sequences that depend on rank and step; return the log."""
    log = []
    ledger = ledger_of(replica)
    for step in steps:
        generator = torch.Generator().manual_seed(10 * step + replica.comm.rank)
        replica.set_rate(replica.task.rate(step))
        replica.forward_backward(torch.randint(64, (4, 17), generator=generator))
        replica.exchange_gradients(step)
        replica.update(step)
        ledger.note(step, replica.members)
        log.append(Entry(step=step, members=replica.members, codes=replica.codes.clone()))
    assert ledger.problem is None
    return log


@pytest.mark.parametrize("kind", [JustOneByte, Mezo])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_replicas_are_identical_send_what_they_promise_and_can_be_replayed(kind: Any, ranks: int) -> None:
    done = on_ranks(kind, ranks, lambda replica: train(replica, range(6)), **TASK)
    (first, log), module = done[0], {JustOneByte: just_one_byte, Mezo: mezo}[kind]
    assert difference(first.weights(), make_model().parameters()) > 0
    for replica, _ in done:
        assert difference(replica.weights(), first.weights()) == 0
        promised = module.cost(make_task(world_size=ranks, **TASK))
        assert sum(replica.comm.counters.sent_bytes) == promised.sent_bytes
        assert sum(replica.comm.counters.sent_messages) == promised.messages
    late = kind(make_task(world_size=ranks, **TASK), make_comm())
    late.replay(log)
    assert difference(late.weights(), first.weights()) == 0
    assert int(late.next_step) == 6


def test_a_rank_joins_late_from_the_log_alone() -> None:
    log: list[Entry] = []
    ready = threading.Event()

    def step(replica: Any) -> None:
        if replica.comm.rank == 0:
            replica.meet((0,))
            log.extend(train(replica, range(3)))
            ready.set()
        else:
            assert ready.wait(JOIN_S)
            replica.replay(log)
        replica.meet((0, 1))
        train(replica, range(3, 6))

    (first, _), (late, _) = on_ranks(JustOneByte, 2, step, **TASK)
    assert [(entry.members, entry.codes.numel()) for entry in log] == [((0,), 2)] * 3
    assert difference(first.weights(), late.weights()) == 0
    assert sum(first.comm.counters.sent_bytes) == 3 * TASK["num_perturbations"]


def test_frozen_weights_stay_and_nothing_is_held_for_backward() -> None:
    task = tuned_task()
    before = {name: p.detach().clone() for name, p in task.model.named_parameters()}
    replica = JustOneByte(task, make_comm())
    assert task.num_parameters == replica.flat.values.numel() == 160
    train(replica, range(3))
    for name, parameter in task.model.named_parameters():
        assert torch.equal(parameter, before[name]) != name.endswith("gain"), name
        assert parameter.grad is None


def test_a_slope_is_that_of_the_loss() -> None:
    task = tuned_task(num_perturbations=1)
    replica = Mezo(task, make_comm())
    sequences = torch.randint(64, (4, 17), generator=torch.Generator().manual_seed(0))
    replica.forward_backward(sequences)
    loss = next_symbol_loss(task.model, sequences)
    loss.backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in task.model.parameters() if p.grad is not None])
    expected = float(gradient @ replica.direction(0, 0, 0))
    assert float(replica.decode(replica.own)) == pytest.approx(expected, rel=0.02, abs=1e-4)


def test_the_ledger_objects_to_other_bytes_than_the_codes() -> None:
    def cheat(replica: Any) -> str | None:
        ledger = ledger_of(replica)
        replica.forward_backward(torch.zeros(4, 17, dtype=torch.int64))
        replica.exchange_gradients(0)
        peer = 1 - replica.comm.rank
        extra = torch.zeros(1)
        replica.comm.exchange(extra, peer, torch.empty(1), peer)
        ledger.note(0, replica.members)
        return ledger.problem

    problems = [problem for _, problem in on_ranks(JustOneByte, 2, cheat, **TASK)]
    assert problems[0] == "step 1: it sent 6 bytes to rank 1, and its codes have 2"


def test_a_shifted_language_is_another_and_no_shift_is_none() -> None:
    plain, shifted = corpus.markov(), corpus.markov(shift=1.0)
    assert corpus.markov(shift=0.0).fingerprint == plain.fingerprint
    assert shifted.fingerprint != plain.fingerprint
    assert 0 < shifted.entropy_rate < plain.entropy_rate
