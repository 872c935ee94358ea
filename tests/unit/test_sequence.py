"""Ranks that share sequences: layouts; gradients equal to one process's, with exactly the bytes that were promised."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paceline.baselines.training import all_gather_sp, lasp, ring_attention, token_ring, ulysses, zeco
from training_task import make_comm, make_model, make_task, on_ranks

from paceline.base.techniques.options import options_of, taken_by
from paceline.families.collectives.api.linear_attention import local_pass, recurrence
from paceline.families.training.api.model import causal_attention, next_symbol_loss
from paceline.families.training.api.sequence.blocks import attend_to
from paceline.families.training.api.sequence.layout import causal_work, contiguous, count, positions, zigzag
from paceline.families.training.api.sequence.replica import SequenceReplica
from paceline.families.training.api.sizes import GATED_LINEAR, SIZES, SOFTMAX
from paceline.families.training.ops.sequence_parallel.flops import attention_flops
from paceline.families.training.spec import FAMILY
from paceline.worker.communication.transport import ThreadHub
from paceline.worker.ranks.session import UnsupportedError

TECHNIQUES: dict[str, tuple[ModuleType, Any]] = {
    "all-gather-sp": (all_gather_sp, all_gather_sp.AllGatherSP),
    "ulysses": (ulysses, ulysses.Ulysses),
    "ring-attention": (ring_attention, ring_attention.RingAttention),
    "token-ring": (token_ring, token_ring.TokenRing),
    "zeco": (zeco, zeco.ZeCO),
    "lasp": (lasp, lasp.LASP),
}
LINEAR = ("zeco", "lasp")
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "token-ring": [{}, {"direct_last": True}],
    "zeco": [{"blocks": blocks} for blocks in (1, 4, 7, 99)],
}
CONTEXT, BATCH = 19, 3
TASK: dict[str, Any] = {"size": "tiny", "context": CONTEXT, "batch": BATCH, "steps": 1}


@given(length=st.integers(1, 200), size=st.integers(1, 9))
def test_every_position_lies_on_one_rank(length: int, size: int) -> None:
    for layout in (contiguous, zigzag):
        places = [positions(runs) for runs in layout(length, size)]
        assert len(places) == size
        assert sorted(p for own in places for p in own) == list(range(length))


@given(size=st.integers(1, 16), runs=st.integers(4, 40))
def test_a_zigzag_evens_out_causal_work_and_neighbours_do_not(size: int, runs: int) -> None:
    length = 2 * size * runs
    work = causal_work(zigzag(length, size))
    assert max(work) == min(work)
    plain = causal_work(contiguous(length, size))
    assert max(plain) / (sum(plain) / size) == pytest.approx(2 - 1 / size, rel=0.05)


def points() -> list[tuple[str, int, int, dict[str, Any]]]:
    """Return technique, ranks, heads of keys and options; the model has four heads, and Ulysses deals them out."""
    return [
        (name, size, kv_heads, options)
        for name in TECHNIQUES
        for size in (1, 2, 3, 4, 8)
        for kv_heads in (4, 2, 1)
        for options in OPTIONS.get(name, [{}])
        if name != "ulysses" or kv_heads % size == 0
    ]


@pytest.mark.parametrize(("name", "size", "kv_heads", "options"), points())
@pytest.mark.one_in(5)
def test_gradients_and_bytes_are_those_of_one_process_and_of_the_formula(
    name: str, size: int, kv_heads: int, options: dict[str, Any]
) -> None:
    """Nineteen positions: no number of ranks divides them."""
    module, kind = TECHNIQUES[name]
    attention = GATED_LINEAR if name in LINEAR else SOFTMAX
    model = replace(SIZES["tiny"], layers=2, kv_heads=kv_heads, attention=attention)
    task = TASK | {"size": model}
    sequences = torch.randint(64, (BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    serial = make_model(model, CONTEXT)
    whole = next_symbol_loss(serial, sequences)
    whole.backward()
    expected = [p.grad for p in serial.parameters() if p.grad is not None]

    def step(replica: Any) -> float:
        loss = float(replica.forward_backward(sequences))
        replica.exchange_gradients(0)
        return loss

    done = on_ranks(partial(kind, **options), size, step, **task)
    replicas, losses = zip(*done, strict=True)
    counts = [(sum(r.comm.counters.sent_bytes), sum(r.comm.counters.sent_messages)) for r in replicas]
    assert sum(losses) / size == pytest.approx(float(whole.detach()), rel=1e-6)
    for replica in replicas:
        for gradient, true in zip(replica.flat.pieces(replica.flat.gradients), expected, strict=True):
            assert float((gradient - true).norm()) <= 1e-6 * float(true.norm())
    promised = module.cost(
        make_task(world_size=size, **task), **taken_by(module.cost, options_of(kind) | options)
    )
    assert max(sent for sent, _ in counts) == promised.sent_bytes == promised.peak_bytes
    assert max(messages for _, messages in counts) == promised.messages


def test_ulysses_needs_heads_for_every_rank() -> None:
    with pytest.raises(UnsupportedError, match="4 heads cannot be dealt out evenly to 3 ranks"):
        ulysses.Ulysses(make_task(world_size=3, **TASK), make_comm(0, ThreadHub(3)))


def test_every_rank_needs_a_position() -> None:
    with pytest.raises(UnsupportedError, match="1 positions are too few for 2 ranks"):
        ring_attention.RingAttention(make_task(world_size=2, context=1), make_comm(0, ThreadHub(2)))


def test_keys_need_heads_for_every_rank() -> None:
    grouped = replace(SIZES["tiny"], kv_heads=2)
    with pytest.raises(UnsupportedError, match="2 heads of keys cannot be dealt out evenly to 4 ranks"):
        ulysses.Ulysses(make_task(world_size=4, **TASK | {"size": grouped}), make_comm(0, ThreadHub(4)))


@pytest.mark.parametrize("name", TECHNIQUES)
def test_a_technique_says_which_attention_it_shares(name: str) -> None:
    own, other = (GATED_LINEAR, SOFTMAX) if name in LINEAR else (SOFTMAX, GATED_LINEAR)
    task = make_task(**TASK | {"size": replace(SIZES["tiny"], attention=other)})
    with pytest.raises(UnsupportedError, match=f"it shares {own} attention, not {other}"):
        TECHNIQUES[name][1](task, make_comm())


def link_bytes(name: str, size: int, kv_heads: int = 4, *, context: int = 32, **options: Any) -> int:
    """Return what the busiest ordered pair carries in one forward and backward."""
    task = TASK | {"context": context, "size": replace(SIZES["tiny"], kv_heads=kv_heads)}
    sequences = torch.randint(64, (BATCH, context + 1), generator=torch.Generator().manual_seed(0))
    kind = partial(TECHNIQUES[name][1], **options)
    done = on_ranks(kind, size, lambda replica: replica.forward_backward(sequences), **task)
    return max(max(replica.comm.counters.sent_bytes) for replica, _ in done)


@pytest.mark.parametrize(
    ("size", "direct"), [(3, False), (4, False), (8, False), (3, True), (4, True), (8, True)]
)
@pytest.mark.one_in(3)
def test_token_rings_busiest_pair_carries_what_its_header_says(size: int, direct: bool) -> None:
    context, heads, width, layers = 16 * size, 4, 20, 4
    rows = layers * BATCH * context // size * 4
    hops = 3 * size - (4 if direct else 1)
    sums = 2 * size - (3 if direct else 1)
    found = link_bytes("token-ring", size, context=context, direct_last=direct)
    assert found == rows * heads * (hops * width + sums)
    for kv_heads in (4, 2, 1):
        ring = link_bytes("ring-attention", size, kv_heads, context=context)
        assert ring == rows * kv_heads * width * (6 * size - 4)
        if kv_heads == heads:
            assert found / ring == pytest.approx(hops / (6 * size - 4), abs=0.02)
            assert (found / ring <= 0.55) == (direct or size == 8)
        if kv_heads == 1:
            assert found > 1.4 * ring


@pytest.mark.parametrize("size", [2, 4])
def test_ulysses_sends_four_shares_of_the_rows_each_way(size: int) -> None:
    """4·T·d/n·(n − 1)/n elements, at four ranks half of what gathering sends."""
    context, width, layers = 32, 80, 4
    task = TASK | {"context": context}
    alone = make_task(**task).num_parameters
    sent = {}
    for name in ("ulysses", "all-gather-sp"):
        cost = TECHNIQUES[name][0].cost(make_task(world_size=size, **task))
        sent[name] = cost.sent_bytes - 2 * 4 * alone * (size - 1) / size
    elements = 4 * context * width / size * (size - 1) / size
    assert sent["ulysses"] == 2 * 4 * layers * BATCH * elements
    assert sent["ulysses"] / sent["all-gather-sp"] == 2 / size


@pytest.mark.parametrize("name", LINEAR)
def test_linear_attention_sends_one_state_each_way_whatever_the_length(name: str) -> None:
    module, kind = TECHNIQUES[name]
    options = taken_by(module.cost, options_of(kind))
    state = 4 * BATCH * 4 * 4 * 20 * 20
    for size, states in ((1, 0), (2, 1), (3, 2), (8, 2)):
        for context in (24, 48, 480):
            model = replace(SIZES["tiny"], attention=GATED_LINEAR)
            task = make_task(world_size=size, **TASK | {"context": context, "size": model})
            gradients = 2 * 4 * task.num_parameters * (size - 1) / size
            assert module.cost(task, **options).sent_bytes == pytest.approx(
                states * state + gradients, abs=64
            )


def flops_of(kind: Any, size: int) -> list[float]:
    found = []
    for rank in range(size):
        task = make_task(rank=rank, world_size=size, **TASK | {"context": 163})
        replica = kind(task, make_comm(rank, ThreadHub(size)))
        own, total = replica.runs[rank], 0.0
        for runs in replica.runs:
            q_tMK, k_sNK = (torch.zeros(count(x), 2, 4) for x in (own, runs))
            total += attention_flops(partial(attend_to, q_tMK, k_sNK, k_sNK, own, runs))
        found.append(total)
    return found


def test_a_zigzag_is_even_in_the_products_that_are_computed() -> None:
    """By blocks, which are computed whole: runs of neighbours give the last of four ranks 1.6 times the mean."""

    class InOrder(ring_attention.RingAttention):
        def __init__(self, task: Any, comm: Any) -> None:
            SequenceReplica.__init__(self, task, comm, contiguous)

    for size in (2, 4):
        flops = flops_of(ring_attention.RingAttention, size)
        assert max(flops) / (sum(flops) / size) <= 1.1
    plain = flops_of(InOrder, 4)
    assert max(plain) / (sum(plain) / 4) == pytest.approx(1.6, rel=0.1)


def test_fused_attention_counts_as_the_products_that_it_stands_for() -> None:
    """Forward two products; backward five, one of which computes the scores again."""
    q, k = (torch.randn(3, heads, 8, 5, requires_grad=True) for heads in (4, 2))
    product = 2 * 3 * 4 * 8 * 8 * 5
    assert attention_flops(lambda: causal_attention(q, k, k)) == 2 * product
    assert attention_flops(lambda: causal_attention(q, k, k).sum().backward()) == 7 * product
    assert attention_flops(lambda: torch.nn.Linear(5, 5)(q)) == 0


def test_the_chunked_recurrence_is_the_recurrence_with_its_gradients() -> None:
    """In float64, over chunks that do not divide the positions."""
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(37, 6, 5, generator=generator, dtype=torch.float64) for _ in range(4)]
    inputs[3] = (0.9 + 0.1 * torch.sigmoid(inputs[3])).log()
    grads = []
    for function in (recurrence, lambda *x: local_pass(*x).out_THD):
        own = [x.clone().requires_grad_() for x in inputs]
        function(*own).pow(2).sum().backward()
        grads.append([x.grad for x in own])
    for left, right in zip(*grads, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("attention", [SOFTMAX, GATED_LINEAR])
@pytest.mark.parametrize("kv_heads", [0, 4, 2, 1])
def test_the_closed_form_counts_parameters_of_every_attention(attention: str, kv_heads: int) -> None:
    size = replace(SIZES["tiny"], kv_heads=kv_heads, attention=attention)
    assert sum(p.numel() for p in make_model(size).parameters()) == size.parameters(64)


def test_heads_of_keys_must_divide_those_of_queries() -> None:
    params = {p.name: p.default for p in FAMILY.parameters_for("sequence_parallel")}
    params |= {"op": "sequence_parallel", "kv_heads": 3}
    assert FAMILY.check(params) == ["kv_heads 3 does not divide the 4 heads of size tiny"]
