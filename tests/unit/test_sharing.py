"""Ranks that share a model's layers: states as plainly computed, bytes as promised, caches that modes share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mutant_files import module_of
from paceline.baselines.serving import data_parallel, shift_parallelism, tensor_parallel, ulysses_inference
from thread_ranks import on_ranks_of_threads
from training_task import make_comm

from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.serving.api.distributing import Cache, Piece, Setting, UnsupportedError
from paceline.families.serving.api.layers import Shape, Turns
from paceline.families.serving.core.engine.model import draw_weights
from paceline.families.serving.core.simulation.costs import NAMES, Costs
from paceline.families.serving.core.simulation.log import DoneStep, Log, Part
from paceline.families.serving.ops.distribute.played import ModeCosts, mode_figures
from paceline.families.serving.ops.distribute.script import Script, draw_script, expected_states
from paceline.worker.communication.transport import ThreadHub

MUTANTS = Path(__file__).parents[1] / "mutants" / "sharing"
CPU = torch.device("cpu")
ENGINE = {"block_size": 4, "num_blocks": 60, "max_batch": 6, "token_budget": 24}
SLOTS = ENGINE["block_size"] * ENGINE["num_blocks"]
CLOSE = 1e-5
TECHNIQUES: dict[str, tuple[ModuleType, Any]] = {
    "data-parallel": (data_parallel, data_parallel.DataParallel),
    "tensor-parallel": (tensor_parallel, tensor_parallel.TensorParallel),
    "ulysses-inference": (ulysses_inference, ulysses_inference.UlyssesInference),
    "shift-parallelism": (shift_parallelism, shift_parallelism.ShiftParallelism),
}


def shape_of(heads: int, kv_heads: int) -> Shape:
    return Shape(
        layers=2, hidden=64, heads=heads, kv_heads=kv_heads, vocab=97, max_context=128, seed=heads + kv_heads
    )


@cache
def script_of(shape: Shape) -> tuple[Script, torch.Tensor]:
    script = draw_script(shape, ENGINE, num_steps=30, longest=40, seed=7, device=CPU)
    return script, expected_states(script, shape, draw_weights(shape))


class Run:
    """One rank's way through a script, in modes by turns."""

    def __init__(self, make: Any, shape: Shape, rank: int, size: int, hub: ThreadHub, **options: Any) -> None:
        self.comm = make_comm(rank, hub)
        self.cache = Cache(shape, SLOTS, torch.float32, CPU)
        self.setting = Setting(
            rank=rank,
            world_size=size,
            shape=shape,
            weights=draw_weights(shape),
            turns=Turns(shape, CPU),
            cache=self.cache,
        )
        self.made = make(self.setting, self.comm, **options)
        self.off, self.given = 0.0, 0
        self.sent: list[tuple[int, int]] = []

    @torch.inference_mode()
    def through(self, shape: Shape, mode: int | None = None) -> Run:
        """Compute all steps; remember how far off the states are and what was sent in each."""
        script, expected = script_of(shape)
        first = 0
        for number, step in enumerate(script.steps):
            self.cache.begin(step.batch, proving=True)
            self.comm.counters.reset()
            left = self.made.step(step.batch, number % len(self.made.modes) if mode is None else mode)
            self.sent.append((sum(self.comm.counters.sent_bytes), sum(self.comm.counters.sent_messages)))
            places = {int(row): first + n for n, row in enumerate(step.batch.last_rows.tolist())}
            first += len(places)
            for row, state in zip(left.rows.tolist(), left.states, strict=True):
                difference = (state.double() - expected[places[row]]).abs().max()
                self.off = max(self.off, math.inf if bool(difference.isnan()) else float(difference))
                self.given += 1
        self.off /= float(expected.abs().max())
        return self


def run(make: Any, shape: Shape, size: int, mode: int | None = None, **options: Any) -> list[Run]:
    hub = ThreadHub(size, timeout_s=60)
    replicated = make is data_parallel.DataParallel

    def of(rank: int) -> Run:
        place = (0, 1) if replicated else (rank, size)
        return Run(make, shape, *place, hub, **options).through(shape, mode)

    return on_ranks_of_threads(of, size)


def wanted(shape: Shape) -> int:
    return sum(len(step.wanted) for step in script_of(shape)[0].steps)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 8), (8, 4), (8, 2), (8, 1)])
@pytest.mark.parametrize("name", sorted(TECHNIQUES))
@pytest.mark.one_in(5)
def test_states_are_those_of_a_plain_computation_and_no_key_moves(
    name: str, heads: int, kv_heads: int, size: int
) -> None:
    shape = shape_of(heads, kv_heads)
    ranks = run(TECHNIQUES[name][1], shape, size)
    assert max(rank.off for rank in ranks) < CLOSE
    everywhere = size if name in ("tensor-parallel", "data-parallel") else 1
    if name != "shift-parallelism":
        assert sum(rank.given for rank in ranks) == everywhere * wanted(shape)
    assert sum(rank.cache.moved_bytes for rank in ranks) == 0
    assert sum(rank.comm.num_pending for rank in ranks) == 0


def test_sequence_parallelism_with_tensor_parallelism_inside() -> None:
    shape = shape_of(8, 2)
    for tensor in (1, 2, 4):
        for name in ("ulysses-inference", "shift-parallelism"):
            ranks = run(TECHNIQUES[name][1], shape, 4, tensor=tensor)
            assert max(rank.off for rank in ranks) < CLOSE
            assert sum(rank.cache.moved_bytes for rank in ranks) == 0


@pytest.mark.parametrize("size", [2, 4])
def test_bytes_are_those_of_the_headers(size: int) -> None:
    shape = shape_of(8, 2)
    steps = script_of(shape)[0].steps
    tensor = run(TECHNIQUES["tensor-parallel"][1], shape, size)
    sequence = run(TECHNIQUES["ulysses-inference"][1], shape, size)
    width = shape.hidden + max(shape.kv_heads, size) * shape.head_dim
    for number, step in enumerate(steps):
        tokens = len(step.batch.tokens_N)
        sent = [rank.sent[number] for rank in tensor]
        assert sum(b for b, _ in sent) == 4 * shape.layers * 4 * (size - 1) * tokens * shape.hidden
        assert {m for _, m in sent} == {4 * (size - 1) * shape.layers}
        sent = [rank.sent[number] for rank in sequence]
        assert sum(b for b, _ in sent) == 4 * shape.layers * 2 * tokens * (size - 1) * width // size
        holders = sum(first < last for first, last in chunk_bounds(tokens, size))
        assert sum(m for _, m in sent) == 2 * holders * (size - 1) * shape.layers


def test_a_mode_more_costs_the_weights_that_the_header_says() -> None:
    shape = shape_of(8, 4)
    norms = 2 * shape.hidden * 4 * shape.layers
    matrices = sum(
        w.numel() * 4
        for n, w in draw_weights(shape).items()
        if w.dim() == 2 and n not in ("embedding", "head")
    )
    for tensor in (1, 2, 4):
        taken = {
            name: sum(r.setting.taken_bytes for r in run(TECHNIQUES[name][1], shape, 4, tensor=tensor))
            for name in ("ulysses-inference", "shift-parallelism")
        }
        sequence = taken["ulysses-inference"] - 4 * norms
        assert sequence == 4 / tensor * matrices
        assert taken["shift-parallelism"] - 8 * norms - sequence == matrices


def test_heads_that_cannot_be_dealt_out_are_not_supported() -> None:
    with pytest.raises(UnsupportedError, match="cannot be dealt out to 3 ranks"):
        Run(tensor_parallel.TensorParallel, shape_of(8, 4), 0, 3, ThreadHub(1))
    with pytest.raises(UnsupportedError, match="no 3 equal shares"):
        Run(ulysses_inference.UlyssesInference, shape_of(8, 4), 0, 4, ThreadHub(1), tensor=3)


@pytest.mark.parametrize("name", ["forgets_a_sum", "other_heads"])
@pytest.mark.parametrize("size", [2, 4])
def test_a_wrong_technique_is_far_off(name: str, size: int) -> None:
    ranks = run(module_of(MUTANTS / f"{name}.py").Mutant, shape_of(8, 4), size)
    assert max(rank.off for rank in ranks) > 100 * CLOSE


def test_keys_that_move_are_seen() -> None:
    """A technique whose modes lie differently is right, and pays."""
    shape = shape_of(8, 4)
    ranks = run(module_of(MUTANTS / "moves_keys.py").Mutant, shape, 2)
    assert max(rank.off for rank in ranks) < CLOSE
    assert sum(rank.cache.moved_bytes for rank in ranks) > 0


def test_a_cache_counts_what_it_holds() -> None:
    shape = shape_of(8, 2)
    for size, copies in ((1, 1), (2, 1), (4, 2)):
        ranks = run(TECHNIQUES["tensor-parallel"][1], shape, size)
        held = [rank.cache.held() for rank in ranks]
        used = int((sum((mask for _, mask in held), torch.zeros(SLOTS)) > 0).sum())
        assert sum(count for count, _ in held) == copies * used * shape.layers * shape.kv_heads
        with pytest.raises(ValueError, match="no range of 2 heads"):
            ranks[0].cache.write(0, range(1, 3), torch.zeros(1, dtype=torch.long), *torch.zeros(2, 1, 2, 8))


def table(step_s: float, token_s: float, **others: float) -> Costs:
    coefficients = dict.fromkeys(NAMES, 0.0) | {"steps": step_s, "tokens": token_s} | others
    return Costs(coefficients=coefficients, kv_bytes_per_token=1, clock="-", num_steps=0, error=0.0, bias=0.0)


@given(step_s=st.floats(1e-4, 1e-2), fewest=st.integers(1, 4000))
def test_the_cheaper_of_two_modes_is_taken(step_s: float, fewest: int) -> None:
    shape = shape_of(8, 4)
    made = Run(shift_parallelism.ShiftParallelism, shape, 0, 1, ThreadHub(1)).made
    # sequence parallelism costs more for a step and less for a token: equal at fewest - 1/2 tokens
    made.learn([table(step_s + (fewest - 0.5) * 1e-5, 1e-5), table(step_s, 2e-5)])
    assert made.choose([(64, 1, True)] * fewest) == shift_parallelism.SEQUENCE
    if fewest > 1:
        assert made.choose([(0, fewest - 1, True)]) == shift_parallelism.TENSOR


PROMPT, DECODE = (0, 192, True), (192, 1, True)


def test_prompts_and_decodes_are_priced_apart() -> None:
    made = Run(shift_parallelism.ShiftParallelism, shape_of(8, 4), 0, 1, ThreadHub(1)).made
    # As over a fast link: no number of decodes gains by sequence parallelism, and a prompt of 192 tokens does.
    sequence = table(5e-3, 5e-5, decoding=1e-3)
    tensor = table(1e-3, 12e-5, decoding=2e-4)
    assert sequence.seconds([PROMPT], 0) < tensor.seconds([PROMPT], 0)
    made.learn([sequence, tensor])
    for decodes in (1, 32, 255):
        step = [DECODE] * decodes
        assert sequence.seconds(step, 0) > tensor.seconds(step, 0)
        assert made.choose(step) == shift_parallelism.TENSOR
    assert made.choose([PROMPT]) == shift_parallelism.SEQUENCE
    # a threshold takes all scheduled tokens together, whatever they are
    counted = Run(shift_parallelism.ShiftParallelism, shape_of(8, 4), 0, 1, ThreadHub(1), threshold=199).made
    counted.learn([sequence, tensor])
    steps = ([PROMPT], [PROMPT] + [DECODE] * 8, [DECODE] * 255)
    assert [counted.choose(step) for step in steps] == [1, 0, 0]


def test_a_given_threshold_is_taken_whatever_costs_say() -> None:
    shape = shape_of(8, 4)
    given_one = Run(shift_parallelism.ShiftParallelism, shape, 0, 1, ThreadHub(1), threshold=9).made
    given_one.learn([table(1.0, 1.0), table(1.0, 1.0)])
    # As in the authors' code, a step of exactly as many tokens is tensor parallelism's.
    assert [given_one.choose([(0, n, True)]) for n in (9, 10)] == [1, 0]


class Chooses:
    """Takes the second mode for single tokens."""

    modes = ("many", "one")

    def __init__(self) -> None:
        self.asked = 0

    def choose(self, pieces: Sequence[Piece]) -> int:
        self.asked += 1
        return int(sum(count for _, count, _ in pieces) == 1)


def test_switches_and_bytes_of_a_load_follow_from_its_steps() -> None:
    made = Chooses()
    costs = ModeCosts(made, [table(2.0, 0.0), table(1.0, 0.0)])  # type: ignore[arg-type]
    counts = [4, 1, 1, 3, 1]
    steps = [
        DoneStep(
            worker=0,
            begin_s=float(n),
            end_s=n + 1.0,
            parts=[Part(call=0, begin=0, count=count, ends=True)],
            seen=1,
        )
        for n, count in enumerate(counts)
    ]
    log = Log(steps=steps, memories=[(0, 9)], workers=[(0, "both")])
    figures = mode_figures(log, costs, [10.0, 100.0])
    assert figures["mode_switches"] == 3
    assert figures["sent_per_token"] == (4 * 10 + 100 + 100 + 3 * 10 + 100) / 10
    assert made.asked == 3
    assert [costs.seconds([(0, n, True)], 5) for n in (1, 2)] == [1.0, 2.0]
