"""Ranks that share experts: routing, gradients equal to one process's, and exactly the bytes that were promised."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paceline.baselines.training import ep_alltoall, tutel
from training_task import make_comm, make_task, on_ranks

from paceline.families.training.api.expert.layer import ExpertLayer
from paceline.families.training.api.expert.replica import Shape
from paceline.families.training.api.expert.routing import route, slots
from paceline.families.training.api.model import Transformer, next_symbol_loss
from paceline.families.training.api.sizes import SIZES
from paceline.families.training.ops.expert_parallel.owners import Owners
from paceline.worker.communication.transport import ThreadHub
from paceline.worker.ranks.session import UnsupportedError

CONTEXT, BATCH = 13, 8
TUTEL = {
    f"tutel-{strategy}-{slices}": (strategy, slices)
    for strategy in ("adaptive", "measured", "cycle", "expert", "data", "model")
    for slices in (0, 2)
}


def make_model(experts: int = 8, kv_heads: int = 4) -> Transformer:
    layer = partial(ExpertLayer, num_experts=experts, top_k=2, capacity_factor=0.9)
    model = Transformer(
        replace(SIZES["nano"], kv_heads=kv_heads), vocabulary=64, context=CONTEXT, layer=layer
    )
    model.initialise(1)
    return model


def technique(name: str) -> tuple[ModuleType, Any, dict[str, Any]]:
    if name == "ep-alltoall":
        return ep_alltoall, ep_alltoall.ExpertAllToAll, {}
    strategy, slices = TUTEL[name]
    return tutel, tutel.Tutel, {"strategy": strategy, "slices": slices}


@given(
    sequences=st.integers(1, 3),
    length=st.integers(1, 12),
    experts=st.integers(1, 6),
    top_k=st.integers(1, 3),
    capacity=st.integers(1, 5),
    seed=st.integers(0, 1 << 20),
)
def test_first_choices_and_early_tokens_take_the_slots(
    sequences: int, length: int, experts: int, top_k: int, capacity: int, seed: int
) -> None:
    top_k = min(top_k, experts)
    logits = torch.randn(sequences, length, experts, generator=torch.Generator().manual_seed(seed))
    found = route(logits, top_k, capacity)
    best = logits.argsort(dim=-1, descending=True)[..., :top_k]
    assert torch.equal(found.experts_GTk, best)
    torch.testing.assert_close(found.weights_GTk, logits.softmax(-1).gather(-1, best))
    for sequence in range(sequences):
        taken = [0] * experts
        for choice in range(top_k):
            for position in range(length):
                expert = int(best[sequence, position, choice])
                kept = taken[expert] < capacity
                assert bool(found.kept_GTk[sequence, position, choice]) == kept
                if kept:
                    assert int(found.places_GTk[sequence, position, choice]) == taken[expert]
                taken[expert] += 1


def test_slots_are_what_all_tokens_need_times_the_factor() -> None:
    assert slots(1.0, 2, 64, 16) == 8
    assert slots(1.25, 2, 64, 16) == 10
    assert slots(1.01, 2, 64, 16) == 9
    assert slots(0.0, 2, 64, 16) == 1
    assert slots(99.0, 2, 64, 16) == 64


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize(
    ("name", "size"),
    [
        (name, size)
        for name in ("ep-alltoall", *TUTEL)
        for size in (1, 2, 4, 8)
        if size > 1 or technique(name)[2].get("slices", 0) <= 1  # one rank is no group of two
    ],
)
@pytest.mark.one_in(7)
def test_gradients_and_bytes_are_those_of_one_process_and_of_the_formula(
    name: str, size: int, kv_heads: int
) -> None:
    """Some tokens are dropped: eight experts have room for less than all."""
    module, kind, options = technique(name)
    sequences = torch.randint(64, (BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    serial = make_model(kv_heads=kv_heads)
    whole = next_symbol_loss(serial, sequences)
    whole.backward()
    expected = [p.grad for p in serial.parameters()]

    def step(replica: Any) -> list[torch.Tensor]:
        losses = []
        for number in range(3):
            replica.step = torch.tensor(number)
            own = sequences[replica.comm.rank :: size]
            losses.append(replica.forward_backward(own))
            replica.exchange_gradients(number)
            if number < 2 and name.startswith("tutel-cycle"):
                check(replica)
        check(replica)
        return losses

    def check(replica: Any) -> None:
        pieces = dict(zip(replica.common, replica.flat.pieces(replica.flat.gradients), strict=True))
        for number, piece in pieces.items():
            close(piece, expected[number])
        for number, parameter, place in replica._owned:
            part = parameter.grad[place]
            start = replica.slice * part.numel()
            close(part.reshape(-1), expected[number].reshape(-1)[start : start + part.numel()])

    task = {"context": CONTEXT, "batch": BATCH, "steps": 3}
    torch.set_num_threads(1)
    done = on_ranks(lambda t, c: kind(replace_model(t, kv_heads), c, **options), size, step, **task)
    replicas, losses = zip(*done, strict=True)
    for number in range(3):
        mean = sum(float(own[number]) for own in losses) / size
        assert mean == pytest.approx(float(whole.detach()), rel=1e-6)
    counts = [(sum(r.comm.counters.sent_bytes), sum(r.comm.counters.sent_messages)) for r in replicas]
    promised = module.cost(replace_model(make_task(world_size=size, **task), kv_heads), **options)
    if name.startswith("tutel-measured"):
        assert promised is None  # times decide
        return
    assert max(sent for sent, _ in counts) == promised.sent_bytes
    assert max(messages for _, messages in counts) == promised.messages


@pytest.mark.parametrize(
    ("name", "experts", "size", "said"),
    [
        ("ep-alltoall", 6, 4, "6 experts cannot be dealt out evenly to 4 ranks"),
        ("tutel-expert-0", 6, 4, "6 experts cannot be dealt out evenly to 4 ranks"),
        ("tutel-expert-2", 3, 4, "3 experts cannot be dealt out evenly to 2 groups of 2 ranks"),
        ("tutel-data-2", 8, 3, "3 ranks do not form groups of 2"),
    ],
)
def test_what_cannot_be_dealt_out_is_unsupported(name: str, experts: int, size: int, said: str) -> None:
    _, kind, options = technique(name)
    task = replace(make_task(world_size=size, context=CONTEXT, batch=BATCH), model=make_model(experts))
    with pytest.raises(UnsupportedError, match=said):
        kind(task, make_comm(0, ThreadHub(size)), **options)


def test_tutel_divides_experts_where_ranks_are_more() -> None:
    task = replace(make_task(rank=5, world_size=8, context=CONTEXT, batch=BATCH), model=make_model(experts=2))
    replica = tutel.Tutel(task, make_comm(5, ThreadHub(8)))
    assert (replica.slices, replica.group, replica.slice) == (4, 1, 1)
    assert [tuple(p.shape) for p in replica.up_efD] == [(1, 32, 32), (1, 32, 32)]


@given(
    experts=st.sampled_from([1, 2, 4, 8, 16]),
    ranks=st.sampled_from([1, 2, 4, 8]),
    rows=st.integers(1, 4000),
    slices=st.sampled_from([1, 2, 4]),
)
def test_tutel_chooses_what_sends_least(experts: int, ranks: int, rows: int, slices: int) -> None:
    if ranks % slices or experts % (ranks // slices):
        return
    shape = Shape(ranks=ranks, layers=2, experts=experts, width=32, hidden=128, rows=rows)
    sent = {name: tutel.sent(name, shape, slices)[0] for name in tutel.STRATEGIES}
    assert sent[tutel.choice("adaptive", 0, shape, slices)] == min(sent.values())
    n, tokens, weights = ranks, 4 * experts * rows * 32, 8 * experts * 128 * 32
    assert sent["expert"] == pytest.approx(4 * tokens * (n - slices) / n + 2 * (slices - 1) * weights / n)
    assert sent["model"] == pytest.approx(4 * tokens * slices * (n - 1) / n)
    assert sent["data"] == pytest.approx(2 * (n - 1) * weights / n)


@pytest.mark.parametrize(
    ("slow", "slices", "fastest"),
    [
        ({"data"}, 1, "expert"),
        ({"expert"}, 1, "data"),
        ({"expert", "data"}, 2, "model"),
        ({"expert", "model"}, 2, "data"),
    ],
)
def test_tutel_measures_what_is_fastest_on_the_slowest_rank(
    monkeypatch: pytest.MonkeyPatch, slow: set[str], slices: int, fastest: str
) -> None:
    """On one rank of two every other strategy is slow; each rank has a clock that only experts move."""
    run_experts = tutel.Tutel.run_experts
    now_s = [0.0, 0.0]

    def slowed(self: Any, layer: int, slots: torch.Tensor) -> torch.Tensor:
        now_s[self.comm.rank] += 0.1 if self.now in slow and self.comm.rank == 1 else 0.001
        return run_experts(self, layer, slots)

    monkeypatch.setattr(tutel.Tutel, "run_experts", slowed)
    monkeypatch.setattr(tutel.Tutel, "_clock", lambda self: now_s[self.comm.rank])
    sequences = torch.randint(64, (BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    tried = 3 if slices > 1 else 2

    def step(replica: Any) -> list[str]:
        taken = []
        for number in range(tutel.TRIALS * tried + 2):
            replica.forward_backward(sequences[replica.comm.rank :: 2])
            replica.exchange_gradients(number)
            taken.append(replica.now)
        return taken

    done = on_ranks(
        lambda t, c: tutel.Tutel(replace_model(t, 4), c, strategy="measured", slices=slices),
        2,
        step,
        context=CONTEXT,
        batch=BATCH,
        steps=tutel.TRIALS * tried + 2,
    )
    for replica, taken in done:
        assert taken == [*tutel.STRATEGIES[:tried] * tutel.TRIALS, fastest, fastest]
        assert torch.equal(replica.best_s, done[0][0].best_s)
    task = replace_model(make_task(world_size=2, context=CONTEXT, batch=BATCH), 4)
    assert tutel.cost(task, strategy="measured", slices=0) is None


def test_owners_see_what_changes_hands() -> None:
    owners, weights = Owners(), torch.zeros(8)
    owners.look([(3, 0, weights)])
    owners.look([(3, 0, weights)])
    assert owners.moved_bytes == 0
    owners.look([(3, 0, weights), (4, 0, weights[:4])])
    assert owners.moved_bytes == 16


def replace_model(task: Any, kv_heads: int) -> Any:
    return replace(task, model=make_model(kv_heads=kv_heads))


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare gradients within 1e-6 of their norm, as float32 sums in another order may differ."""
    apart = (found.double() - expected.double()).norm()
    assert apart <= 1e-6 * max(expected.double().norm(), 1e-6), float(apart / expected.double().norm())
