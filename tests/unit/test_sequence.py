"""Ranks that share sequences: layouts; gradients equal to one process's, with exactly the bytes that were promised."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paceline.baselines.training import all_gather_sp, ring_attention, ulysses

from paceline.families.training.model import Transformer, next_symbol_loss
from paceline.families.training.replica import Task
from paceline.families.training.sequence.layout import causal_work, contiguous, zigzag
from paceline.families.training.sizes import SIZES
from paceline.worker.comm import Comm
from paceline.worker.session import UnsupportedError
from paceline.worker.transport import ThreadHub, ThreadTransport

TECHNIQUES: dict[str, tuple[ModuleType, Any]] = {
    "all-gather-sp": (all_gather_sp, all_gather_sp.AllGatherSP),
    "ulysses": (ulysses, ulysses.Ulysses),
    "ring-attention": (ring_attention, ring_attention.RingAttention),
}
CONTEXT, BATCH = 13, 3


@given(length=st.integers(1, 200), size=st.integers(1, 9))
def test_every_position_lies_on_one_rank(length: int, size: int) -> None:
    for layout in (contiguous, zigzag):
        places = layout(length, size)
        assert len(places) == size
        assert sorted(p for own in places for p in own) == list(range(length))


@given(size=st.integers(1, 16), runs=st.integers(4, 40))
def test_a_zigzag_evens_out_causal_work_and_neighbours_do_not(size: int, runs: int) -> None:
    length = 2 * size * runs
    work = causal_work(zigzag(length, size))
    assert max(work) == min(work)
    plain = causal_work(contiguous(length, size))
    assert max(plain) / (sum(plain) / size) == pytest.approx(2 - 1 / size, rel=0.05)


def make_model() -> Transformer:
    model = Transformer(SIZES["tiny"], vocabulary=64, context=CONTEXT)
    model.initialise(3)
    return model


def make_task(rank: int, size: int, context: int = CONTEXT) -> Task:
    return Task(
        model=make_model(),
        rank=rank,
        world_size=size,
        device=torch.device("cpu"),
        seed=1,
        steps=1,
        optimizer_name="sgd",
        peak_rate=0.1,
        warmup_steps=0,
        tokens=BATCH * context,
        context=context,
    )


@pytest.mark.parametrize(
    ("name", "size"),
    [(n, s) for n in TECHNIQUES for s in (1, 2, 3, 4) if (n, s) != ("ulysses", 3)],  # it has four heads
)
def test_gradients_and_bytes_are_those_of_one_process_and_of_the_formula(name: str, size: int) -> None:
    """Thirteen positions: no number of ranks divides them."""
    module, kind = TECHNIQUES[name]
    sequences = torch.randint(64, (BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    serial = make_model()
    whole = next_symbol_loss(serial, sequences)
    whole.backward()
    expected = torch.cat([p.grad.reshape(-1) for p in serial.parameters() if p.grad is not None])
    hub, found = ThreadHub(size), {}

    def run(rank: int) -> None:
        comm = Comm(ThreadTransport(hub, rank))
        replica = kind(make_task(rank, size), comm)
        loss = replica.forward_backward(sequences)
        replica.exchange_gradients(0)
        counts = sum(comm.counters.sent_bytes), sum(comm.counters.sent_messages)
        found[rank] = float(loss), replica.flat.gradients.clone(), counts

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    losses, gradients, counts = zip(*(found[rank] for rank in range(size)), strict=True)
    assert sum(losses) / size == pytest.approx(float(whole.detach()), rel=1e-6)
    for gradient in gradients:
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-7)
    promised = module.cost(make_task(0, size))
    assert max(sent for sent, _ in counts) == promised.sent_bytes == promised.peak_bytes
    assert max(messages for _, messages in counts) == promised.messages


def test_ulysses_needs_heads_for_every_rank() -> None:
    with pytest.raises(UnsupportedError, match="4 heads cannot be dealt out evenly to 3 ranks"):
        ulysses.Ulysses(make_task(0, 3), Comm(ThreadTransport(ThreadHub(3), 0)))


def test_every_rank_needs_a_position() -> None:
    with pytest.raises(UnsupportedError, match="1 positions are too few for 2 ranks"):
        ring_attention.RingAttention(make_task(0, 2, context=1), Comm(ThreadTransport(ThreadHub(2), 0)))
