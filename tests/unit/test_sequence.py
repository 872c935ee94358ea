"""Ranks that share sequences: layouts; gradients equal to one process's, with exactly the bytes that were promised."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paceline.baselines.training import all_gather_sp, ring_attention, ulysses
from training_task import make_comm, make_model, make_task, on_ranks

from paceline.families.training.model import next_symbol_loss
from paceline.families.training.sequence.layout import causal_work, contiguous, zigzag
from paceline.worker.session import UnsupportedError
from paceline.worker.transport import ThreadHub

TECHNIQUES: dict[str, tuple[ModuleType, Any]] = {
    "all-gather-sp": (all_gather_sp, all_gather_sp.AllGatherSP),
    "ulysses": (ulysses, ulysses.Ulysses),
    "ring-attention": (ring_attention, ring_attention.RingAttention),
}
CONTEXT, BATCH = 13, 3
TASK: dict[str, Any] = {"size": "tiny", "context": CONTEXT, "batch": BATCH, "steps": 1}


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


@pytest.mark.parametrize(
    ("name", "size"),
    [(n, s) for n in TECHNIQUES for s in (1, 2, 3, 4) if (n, s) != ("ulysses", 3)],  # it has four heads
)
def test_gradients_and_bytes_are_those_of_one_process_and_of_the_formula(name: str, size: int) -> None:
    """Thirteen positions: no number of ranks divides them."""
    module, kind = TECHNIQUES[name]
    sequences = torch.randint(64, (BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    serial = make_model("tiny", CONTEXT)
    whole = next_symbol_loss(serial, sequences)
    whole.backward()
    expected = torch.cat([p.grad.reshape(-1) for p in serial.parameters() if p.grad is not None])

    def step(replica: Any) -> float:
        loss = float(replica.forward_backward(sequences))
        replica.exchange_gradients(0)
        return loss

    done = on_ranks(kind, size, step, **TASK)
    replicas, losses = zip(*done, strict=True)
    gradients = [r.flat.gradients for r in replicas]
    counts = [(sum(r.comm.counters.sent_bytes), sum(r.comm.counters.sent_messages)) for r in replicas]
    assert sum(losses) / size == pytest.approx(float(whole.detach()), rel=1e-6)
    for gradient in gradients:
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-7)
    promised = module.cost(make_task(world_size=size, **TASK))
    assert max(sent for sent, _ in counts) == promised.sent_bytes == promised.peak_bytes
    assert max(messages for _, messages in counts) == promised.messages


def test_ulysses_needs_heads_for_every_rank() -> None:
    with pytest.raises(UnsupportedError, match="4 heads cannot be dealt out evenly to 3 ranks"):
        ulysses.Ulysses(make_task(world_size=3, **TASK), make_comm(0, ThreadHub(3)))


def test_every_rank_needs_a_position() -> None:
    with pytest.raises(UnsupportedError, match="1 positions are too few for 2 ranks"):
        ring_attention.RingAttention(make_task(world_size=2, context=1), make_comm(0, ThreadHub(2)))
