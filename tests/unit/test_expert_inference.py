"""Inference with shared experts: traces, the placement program, logits of one process, and bytes of the formula."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paceline.baselines.training import ep_decode, exflow
from scipy.optimize import Bounds, LinearConstraint, milp
from training_task import make_comm, make_task, on_ranks

from paceline.base.techniques.options import options_of, taken_by
from paceline.families.training.api.expert.layer import ExpertLayer, expert_layers
from paceline.families.training.api.expert.placement import (
    CALL_COMPARISONS,
    Placement,
    _groupings,
    contiguous,
    num_comparisons,
    solve,
    stays,
    transitions,
)
from paceline.families.training.api.model import Transformer
from paceline.families.training.api.replica import Comm, Task
from paceline.families.training.api.router import Router
from paceline.families.training.api.sizes import SIZES
from paceline.families.training.ops.expert_inference.traces import make_router, steps_between
from paceline.worker.communication.transport import ThreadHub
from paceline.worker.ranks.session import UnsupportedError

CONTEXT, BATCH, LAYERS = 5, 8, SIZES["nano"].layers
TASK = {"context": CONTEXT, "batch": BATCH, "steps": 1}
TECHNIQUES: dict[str, tuple[ModuleType, Any, dict[str, Any]]] = {
    "ep-decode": (ep_decode, ep_decode.ExpertDecode, {}),
    "exflow": (exflow, exflow.ExFlow, {}),
    "exflow-contiguous": (exflow, exflow.ExFlow, {"placement": "contiguous"}),
}


def make_model(experts: int = 8, kv_heads: int = 0) -> Transformer:
    layer = partial(ExpertLayer, num_experts=experts, top_k=1, capacity_factor=1.0)
    model = Transformer(
        replace(SIZES["nano"], kv_heads=kv_heads), vocabulary=64, context=CONTEXT, layer=layer
    )
    model.initialise(1)
    return model


def router(kind: str = "markov", layers: int = LAYERS, experts: int = 8) -> Router:
    return make_router(
        kind,
        layers=layers,
        experts=experts,
        affinity=0.8,
        passes=2,
        sequences=BATCH,
        context=CONTEXT,
        seed=3,
    )


def of_experts(task: Task, experts: int = 8, kv_heads: int = 0) -> Task:
    return replace(task, model=make_model(experts, kv_heads), router=router(experts=experts))


def balanced(experts: int, ranks: int) -> Iterator[list[int]]:
    """Yield every way to give each rank as many experts."""

    def fill(row: list[int], rank: int) -> Iterator[list[int]]:
        if rank == ranks:
            yield row
            return
        free = [e for e in range(experts) if row[e] < 0]
        for chosen in combinations(free, experts // ranks):
            yield from fill([rank if e in chosen else r for e, r in enumerate(row)], rank + 1)

    yield from fill([-1] * experts, 0)


def is_balanced(placement: Placement, ranks: int) -> bool:
    return all(sorted(set(row)) == list(range(ranks)) for row in placement) and all(
        len({row.count(r) for r in range(ranks)}) == 1 for row in placement
    )


@settings(max_examples=12)
@given(
    shape=st.sampled_from([(4, 2, 4), (4, 4, 3), (6, 2, 3), (6, 3, 2), (6, 6, 2), (4, 1, 3)]),
    seed=st.integers(0, 1 << 16),
)
def test_no_placement_keeps_more_tokens_than_the_programs(shape: tuple[int, int, int], seed: int) -> None:
    experts, ranks, layers = shape
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 50, (layers - 1, experts, experts), generator=generator)
    found = solve(counts, ranks)
    assert is_balanced(found, ranks)
    rows = list(balanced(experts, ranks))
    fixed = rows[:1] if ranks > 1 else rows
    if ranks > 1:
        fixed = [
            row
            for row in rows
            if [row.index(r) for r in range(ranks)] == sorted(map(row.index, range(ranks)))
        ]
    best = max(stays([first, *rest], counts) for first in fixed for rest in product(rows, repeat=layers - 1))
    assert stays(found, counts) == best


@pytest.mark.parametrize(
    ("experts", "ranks", "layers"), [(6, 2, 3), (4, 4, 3), pytest.param(8, 2, 2, marks=pytest.mark.full)]
)
def test_an_integer_programming_solver_finds_no_better_one(experts: int, ranks: int, layers: int) -> None:
    """max Σ w·y with y(i, j, r) ≤ x(i, r) and y(i, j, r) ≤ x(j, r), x binary and balanced: the paper's program."""
    counts = torch.randint(0, 100, (layers - 1, experts, experts), generator=torch.Generator().manual_seed(1))
    num_x, num_y = layers * experts * ranks, (layers - 1) * experts * experts * ranks

    def x(layer: int, expert: int, rank: int) -> int:
        return (layer * experts + expert) * ranks + rank

    rows, low, high = [], [], []

    def add(terms: dict[int, float], least: float, most: float) -> None:
        row = np.zeros(num_x + num_y)
        for column, value in terms.items():
            row[column] = value
        rows.append(row)
        low.append(least)
        high.append(most)

    for layer in range(layers):
        for expert in range(experts):
            add({x(layer, expert, r): 1 for r in range(ranks)}, 1, 1)
        for rank in range(ranks):
            add({x(layer, e, rank): 1 for e in range(experts)}, experts // ranks, experts // ranks)
    gains = np.zeros(num_x + num_y)
    column = num_x
    for layer, i, j, rank in product(range(layers - 1), range(experts), range(experts), range(ranks)):
        gains[column] = float(counts[layer, i, j])
        add({column: 1, x(layer, i, rank): -1}, -np.inf, 0)
        add({column: 1, x(layer + 1, j, rank): -1}, -np.inf, 0)
        column += 1
    result = milp(
        -gains,
        constraints=LinearConstraint(np.array(rows), low, high),
        integrality=np.concatenate([np.ones(num_x), np.zeros(num_y)]),
        bounds=Bounds(0, 1),
    )
    assert result.success
    assert stays(solve(counts, ranks), counts) == round(-result.fun)


def test_states_are_counted_as_they_are_made() -> None:
    for experts, ranks, states in ((8, 8, 1), (8, 4, 105), (8, 2, 35), (16, 2, 6435)):
        assert num_comparisons(experts, ranks) == (states**2 + CALL_COMPARISONS) * ranks * 2**ranks
        assert len(list(_groupings(tuple(range(experts)), experts // ranks))) == states


def test_a_chain_prefers_some_experts_and_loads_all_alike() -> None:
    steps = steps_between("markov", 4, 8, 0.8, seed=5)
    np.testing.assert_allclose(steps.sum(axis=1), 1)
    np.testing.assert_allclose(steps.sum(axis=2), 1)
    np.testing.assert_allclose(steps_between("iid", 4, 8, 0.8, seed=5), 1 / 8)


@pytest.mark.parametrize(("kind", "least", "most"), [("markov", 0.3, 0.9), ("iid", -0.05, 0.05)])
def test_placing_by_affinity_saves_moves_where_there_is_affinity(
    kind: str, least: float, most: float
) -> None:
    """Placed by a sample, counted on other tokens of the same chain."""
    drawn = make_router(kind, layers=8, experts=8, affinity=0.8, passes=4, sequences=16, context=64, seed=7)
    counts = transitions(drawn.experts_PBTL.reshape(-1, 8), 8)
    total = int(counts.sum())
    for ranks in (2, 4):
        placed = solve(transitions(drawn.profile_NL, 8), ranks)
        moved, plain = total - stays(placed, counts), total - stays(contiguous(8, 8, ranks), counts)
        assert least <= 1 - moved / plain <= most


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("name", TECHNIQUES)
@pytest.mark.one_in(5)
def test_logits_and_bytes_are_those_of_one_process_and_of_the_formula(
    name: str, size: int, kv_heads: int
) -> None:
    module, kind, options = TECHNIQUES[name]
    batches = torch.randint(64, (2, BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    serial, drawn = make_model(kv_heads=kv_heads), router()

    def read(replica: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        found, replica.router = [], drawn
        for batch in batches:
            replica.forward_backward(batch)
            found.append((replica.logits_BTV, replica.times_BT))
        return found

    def make(task: Task, comm: Comm) -> Any:
        return kind(of_experts(task, kv_heads=kv_heads), comm, **options)

    done = on_ranks(make, size, read, **TASK)
    for number, batch in enumerate(batches):
        for index, layer in enumerate(expert_layers(serial)):
            layer.chosen_GT = drawn.chosen(number)[..., index]
        with torch.no_grad():
            expected = serial(batch[:, :-1])
        whole, times = torch.zeros_like(expected), torch.zeros(BATCH, CONTEXT)
        for _, found in done:
            logits, own_times = found[number]
            whole[own_times > 0] = logits[own_times > 0]
            times += own_times
        assert bool((times == 1).all())
        assert float((whole - expected).norm() / expected.norm()) <= 1e-6
    task = of_experts(make_task(world_size=size, **(TASK | {"steps": 2})), kv_heads=kv_heads)
    promised = module.cost(task, **taken_by(module.cost, options_of(kind) | options))
    counters = [replica.comm.counters for replica, _ in done]
    assert max(sum(c.sent_bytes) for c in counters) == promised.sent_bytes
    assert max(sum(c.sent_messages) for c in counters) == promised.messages


@pytest.mark.parametrize("name", TECHNIQUES)
def test_experts_that_do_not_divide_are_unsupported(name: str) -> None:
    _, kind, options = TECHNIQUES[name]
    task = of_experts(make_task(world_size=4, **TASK), experts=6)
    with pytest.raises(UnsupportedError, match="6 experts cannot be dealt out evenly to 4 ranks"):
        kind(task, make_comm(0, ThreadHub(4)), **options)


def test_a_program_that_is_too_large_is_unsupported() -> None:
    task = of_experts(make_task(world_size=4, **TASK), experts=16)
    with pytest.raises(UnsupportedError, match="placing 16 experts on 4 ranks is too large"):
        exflow.ExFlow(task, make_comm(0, ThreadHub(4)))
