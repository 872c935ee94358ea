"""Orders of a batch's operators: closed forms, bounds, wrong orders, and cut batches computed as whole ones."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from mutant_files import module_of
from paceline.baselines.serving import nanoflow
from paceline.baselines.serving.nano_batched import NanoBatched
from paceline.baselines.serving.nanoflow import NanoFlow
from paceline.baselines.serving.sequential_operators import SequentialOperators

from paceline.families.serving.api.layers import rms_norm
from paceline.families.serving.api.overlapping import COMPUTE, Given, NanoBatch, Operator
from paceline.families.serving.api.paged import Batch, Chunk
from paceline.families.serving.ops.overlap import split
from paceline.families.serving.ops.overlap.figures import figures
from paceline.families.serving.ops.overlap.gate import broken_laws
from paceline.families.serving.ops.overlap.operators import given_of, least_s
from paceline.families.serving.ops.overlap.run import MAX_DEVIATION

MUTANTS = Path(__file__).parents[1] / "mutants" / "overlap"
WRONG = {
    "begins-early": "begins before",
    "overbooks": r"shares sum to 2\.000",
    "leaves-rows-out": "row 1024 is not computed once",
}
POINT: dict[str, Any] = {
    "served": "llama-2-70b",
    "device": "a100-80gb-sxm",
    "tp_size": 8,
    "batch_rows": 2048,
    "prompt_tokens": 512,
    "output_tokens": 512,
    "exchange": 0.8,
    "start_latency": 3e-6,
}


def point(**changed: Any) -> Given:
    return given_of({**POINT, **changed})


def few(given: Given, layers: int = 4) -> Given:
    return replace(given, layers=layers)


def time_of(batches: Sequence[NanoBatch], given: Given) -> float:
    return figures(batches, given, least_s(given))["iteration_time"]


@pytest.fixture(params=["narrow", pytest.param("whole", marks=pytest.mark.full)])
def search(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search two pairs of cuts from one beginning in the gate: a twelfth of all."""
    if request.param == "narrow":
        monkeypatch.setattr(nanoflow, "CUTS", ((3, 3), (4, 2)))
        monkeypatch.setattr(nanoflow, "BEGINNINGS", ((0.8, 0.2),))


def test_counts_of_a_layer_are_those_of_its_shapes() -> None:
    given = point()
    by_name = {o.name: o for o in given.operators}
    weights = sum(o.fixed_bytes for o in given.operators) * 8 / 2 * given.layers
    assert weights == pytest.approx(68.4e9, rel=0.01)  # Llama 2 70B without its embeddings
    assert by_name["decode-attention"].rows == by_name["prefill-attention"].rows == 1024
    # 8 heads of keys and 8 of values of 128 numbers in two bytes, over a context of 512 and half of 512, on 8 devices
    assert by_name["decode-attention"].row_bytes == 2 * 8 * 128 * 2 * 768 / 8
    assert by_name["reduce-o"].row_wire_bytes == 2 * 7 / 8 * 8192 * 2
    assert least_s(given) == pytest.approx(2 * weights * 2048 / 8 / 312e12)


def test_whole_batches_take_the_sum_of_all_times_alone() -> None:
    given = point()
    order = SequentialOperators().order(given)
    assert broken_laws(order, given) == []
    expected = given.layers * sum(given.alone_s(o, o.rows) for o in given.operators)
    assert time_of(order, given) == pytest.approx(expected)
    assert figures(order, given, least_s(given))["overlapped_share"] == 0.0


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_cutting_alone_never_helps_and_costs_what_is_read_and_started_again(parts: int) -> None:
    given = few(point())
    order = NanoBatched(parts=parts).order(given)
    assert broken_laws(order, given) == []
    starts = given.layers * len(given.operators) * (parts - 1) * given.start_s
    assert time_of(order, given) == pytest.approx(
        time_of(SequentialOperators().order(given), given) + starts, rel=1e-3
    )


@pytest.mark.parametrize(("exchange", "served", "tp_size"), [(0.8, "llama-2-70b", 8), (1.0, "llama-3-8b", 1)])
def test_nanoflow_gains_and_stays_within_what_shares_cost(
    exchange: float, served: str, tp_size: int, search: None
) -> None:
    given = few(point(exchange=exchange, served=served, tp_size=tp_size), 6)
    order = NanoFlow().order(given)
    assert broken_laws(order, given) == []
    whole_s = time_of(SequentialOperators().order(given), given)
    # A share r reaches at most r * exchange / 0.4 of memory's or the network's rate, and compute just r.
    least = given.layers * sum(
        given.alone_s(o, o.rows) * (1.0 if o.kind == COMPUTE else 0.4 / exchange) for o in given.operators
    )
    assert least <= time_of(order, given) < 0.95 * whole_s


def test_nothing_is_gained_where_a_share_reaches_no_more_than_itself(search: None) -> None:
    given = few(point(exchange=0.4), 6)
    order = NanoFlow().order(given)
    assert broken_laws(order, given) == []
    assert time_of(order, given) == pytest.approx(time_of(SequentialOperators().order(given), given))


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_order_is_found_out(name: str) -> None:
    given = few(point())
    made = module_of(MUTANTS / f"{name.replace('-', '_')}.py")
    (wrong,) = [c for c in vars(made).values() if isinstance(c, type) and c.__module__ == made.__name__]
    problems = broken_laws(wrong().order(given), given)
    assert any(re.search(WRONG[name], p) for p in problems), problems


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"share": 0.0}, "share of 0.0"),
        ({"share": 1.5}, "share of 1.5"),
        ({"share": math.nan}, "share of nan"),
        ({"begin_s": -1.0}, "begins at"),
        ({"begin_s": math.nan}, "begins at"),
        ({"operator": "attention"}, "has no operator"),
        ({"layer": 9}, "has no operator"),
        ({"end": 9999}, "is not within rows"),
        ({"end": 1}, "not computed once"),
    ],
)
def test_a_nano_batch_that_is_none_is_found_out(changed: dict[str, Any], problem: str) -> None:
    given = few(point())
    order = list(SequentialOperators().order(given))
    order[3] = replace(order[3], **changed)
    assert any(problem in p for p in broken_laws(order, given))


def test_a_prompts_attention_waits_for_all_rows_before_it() -> None:
    given = few(point(), 1)
    order = sorted(NanoBatched(parts=2).order(given), key=lambda b: b.begin_s)
    early = [b for b in order if b.operator == "prefill-attention" and b.end == 2048]
    late = [b for b in order if b.operator == "kqv" and b.begin == 1024]
    # the attention of the prompt's second half before the keys of its first half: they come last now
    swapped = [replace(b, begin_s=9.0) if b in late else b for b in order]
    assert early
    assert any("prefill-attention of layer 0" in p for p in broken_laws(swapped, given))


@pytest.mark.parametrize("seed", range(4))
def test_cut_batches_compute_what_whole_ones_do(seed: int, search: None) -> None:
    rng = random.Random(seed)
    rows = rng.randrange(40, 120)
    given = few(
        point(
            batch_rows=rows,
            prompt_tokens=rng.choice([20, 100]),
            output_tokens=50,
            tp_size=1,
            served="llama-3-8b",
        )
    )
    for technique in (NanoBatched(parts=rng.randrange(2, 7)), NanoFlow()):
        order = technique.order(given)
        assert broken_laws(order, given) == []
        assert split.deviation(order, given, seed) <= MAX_DEVIATION


@pytest.mark.parametrize("name", ["begins-early", "leaves-rows-out", "swapped"])
def test_rows_that_are_missing_show_in_the_numbers(name: str) -> None:
    """The executed batch is a judge of its own, that knows nothing of shares and times."""
    given = few(point(batch_rows=64))
    order = list(NanoBatched(parts=2).order(given))
    if name == "swapped":
        order = [replace(b, begin_s=-b.begin_s) for b in order]
    elif name == "begins-early":
        order = [replace(b, begin_s=0.0) if b.operator == "down" else b for b in order]
    else:
        order = [b for b in order if b.operator != "down" or b.begin == 0]
    assert split.deviation(order, given, 1) == math.inf


def test_rows_computed_wrongly_show_in_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    given = few(point(batch_rows=64))
    order = NanoBatched(parts=2).order(given)
    honest = split._Layer.prefill_attention

    def forgets_the_first_half(layer: Any, begin: int, end: int) -> None:
        honest(layer, begin, end)
        if begin > layer.batch.decoding:
            layer.kept["mixed"][begin:end] *= 1.001

    monkeypatch.setitem(split._OPERATORS, "prefill-attention", forgets_the_first_half)
    assert MAX_DEVIATION < split.deviation(order, given, 1) < 0.1


@torch.inference_mode()
def test_the_small_model_computes_what_the_engine_does() -> None:
    """Requests that decode behind real contexts, and a prompt: the engine's next tokens."""
    torch.set_num_threads(1)
    given = few(point(batch_rows=24), split.LAYERS)
    batch = split.drawn(given, 3)
    shape, decoding, length = batch.model.shape, batch.decoding, split.CONTEXT
    size = 4
    own = type(batch.model)(shape, 64 * size * size)
    tokens = torch.randint(
        4, shape.vocab, (24 + decoding * length,), generator=torch.Generator().manual_seed(1)
    )
    blocks_of = -(-(length + 1) // size)
    blocks_DC = torch.arange(decoding * blocks_of).reshape(decoding, blocks_of)
    slots = (blocks_DC[:, :, None] * size + torch.arange(size)).flatten(1)
    nothing = torch.zeros((0, 1), dtype=torch.long)
    for row in range(decoding):  # their contexts
        own.next_tokens(
            Batch(
                tokens_N=tokens[24 + row * length : 24 + (row + 1) * length],
                positions_N=torch.arange(length),
                slots_N=slots[row, :length],
                chunks=[Chunk(first=0, rows=length, context=length, blocks_C=blocks_DC[row])],
                blocks_DC=nothing,
                lengths_D=torch.zeros(0, dtype=torch.long),
                last_rows=torch.tensor([length - 1]),
                block_size=size,
            )
        )
    cached = own._cache.numbers[:, slots[:, :length]]  # [layers, D, L, 2, G, d]
    contexts = [(c[:, :, 0].transpose(1, 2), c[:, :, 1].transpose(1, 2)) for c in cached]
    prompt = 24 - decoding
    prompt_blocks = decoding * blocks_of + torch.arange(-(-prompt // size))
    prompt_slots = (prompt_blocks[:, None] * size + torch.arange(size)).flatten()[:prompt]
    expected = own.next_tokens(
        Batch(
            tokens_N=tokens[:24],
            positions_N=torch.cat([torch.full((decoding,), length), torch.arange(prompt)]),
            slots_N=torch.cat([slots[:, length], prompt_slots]),
            chunks=[Chunk(first=decoding, rows=prompt, context=prompt, blocks_C=prompt_blocks)],
            blocks_DC=blocks_DC,
            lengths_D=torch.full((decoding,), length + 1),
            last_rows=torch.arange(24),
            block_size=size,
        )
    )
    x = batch.model.weights["embedding"][tokens[:24]]
    same = replace(batch, x_Nh=x, contexts=contexts)
    found = split.computed(split.whole(given), same)
    logits = rms_norm(found, batch.model.weights["norm"]) @ batch.model.weights["head"].T
    assert logits.argmax(-1).tolist() == expected.tolist()


def test_operators_need_the_rows_that_they_say() -> None:
    rows = {"first": 0, "last": 10, "after": ()}
    before = Operator(name="a", kind=COMPUTE, **rows)  # type: ignore[arg-type]
    past = Operator(name="b", kind=COMPUTE, first=4, last=10, after=("a",), whole_past=True)
    assert (past.needs(7, before), replace(past, whole_past=False).needs(7, before)) == (4, 7)
