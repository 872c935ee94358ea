"""Parts of kernel techniques by themselves: packing, the forest, and how predictions of times are judged."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from paceline.baselines.kernels.gpperf import Forest
from paceline.baselines.kernels.nearest_shape import NearestShape
from paceline.baselines.kernels.tilus import pack_codes, unpack_codes

from paceline.families.kernels.api import decode
from paceline.families.kernels.api.decode import attend_part, fastest, merge
from paceline.families.kernels.api.problem import Problem
from paceline.families.kernels.ops.tile_choice.tiles import (
    Bench,
    features,
    finalists,
    judge,
    shapes,
    tiles_of,
)

PROBLEM = Problem(operation="tile_choice", dtype=torch.float32, device=torch.device("cpu"))


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("k", [8, 40, 41, 896])
def test_packed_codes_come_back_and_take_no_byte_more(bits: int, k: int) -> None:
    codes = torch.randint(1 << bits, (5, k), dtype=torch.uint8, generator=torch.Generator().manual_seed(bits))
    packed = pack_codes(codes, bits)
    assert torch.equal(unpack_codes(packed, bits, k), codes)
    assert packed.numel() == 5 * math.ceil(k / 8) * bits
    if k % 8 == 0:
        assert packed.numel() / (5 * k * 2) == bits / 16


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize(("k", "group"), [(2048, 64), (896, 64), (96, 32), (40, 20), (8, 8)])
def test_codes_in_lanes_come_back_and_take_no_bit_more(bits: int, k: int, group: int) -> None:
    lowbit = pytest.importorskip("paceline.baselines.kernels.triton_lowbit")
    codes = torch.randint(1 << bits, (3, k), dtype=torch.uint8, generator=torch.Generator().manual_seed(bits))
    packed = lowbit.pack_lanes(codes, bits, group)
    lanes, widths = lowbit.chunk_lanes(k, group), lowbit.fields(bits)
    assert packed.dtype == torch.int32
    assert packed.numel() * 32 == 3 * -(-k // 32) * 32 * bits
    found = torch.zeros(3, packed.shape[2] // lanes, 32, lanes, dtype=torch.int64)
    lift = 0
    for width in widths:
        for index in range(32):
            word, bit = lowbit.place(width, widths[0], index)
            field = packed[lift + word].to(torch.int64) >> bit & ((1 << width) - 1)
            found[:, :, index] |= field.view(3, -1, lanes) << lift
        lift += width
    assert torch.equal(found.view(3, -1)[:, :k], codes.to(torch.int64))


def test_a_split_is_timed_on_the_problem_itself_and_the_fastest_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes = []
    now_s = 0.0
    monkeypatch.setattr(decode, "perf_counter", lambda: now_s)

    class Kernels:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def run(self, *tensors: torch.Tensor) -> None:
            nonlocal now_s
            shapes.append([tuple(tensor.shape) for tensor in tensors])
            now_s += self.seconds

    params = {"batch": 2, "context": 40, "spread": "linear", "heads": 4, "kv_heads": 2, "head_dim": 8}
    problem = Problem(
        operation="attention_decode", dtype=torch.float32, device=torch.device("cpu"), params=params
    )
    assert fastest(problem, {1: Kernels(0.02), 8: Kernels(0.002), 128: Kernels(0.01)}) == 8
    assert shapes[0] == [(2, 4, 8), (61, 2, 8), (61, 2, 8), (2, 4, 8)]


def test_parts_merge_in_any_order_to_the_whole() -> None:
    generator = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(n, 16, dtype=torch.float64, generator=generator) for n in (3, 50, 50))
    whole = merge([attend_part(q, k, v)])
    cuts = [(0, 7), (7, 8), (8, 33), (33, 50)]
    parts = [attend_part(q, k[a:b], v[a:b]) for a, b in cuts]
    for order in (parts, parts[::-1], [parts[2], parts[0], parts[3], parts[1]]):
        assert torch.allclose(merge(order), whole, rtol=1e-13, atol=1e-13)


def cost_model(shape: tuple[int, int, int], tile: tuple[int, int, int]) -> float:
    """A time whose best tile depends on the shape: arithmetic, and a cost for each step and each tile's memory."""
    known = features(shape, tile)
    return known[9] / 5e10 + known[7] * 2e-6 + known[6] * known[8] / 4e9


def table(
    count: int, seed: int
) -> tuple[np.ndarray, np.ndarray, list[tuple[tuple[int, int, int], tuple[int, int, int]]]]:
    keys = [(shape, tile) for shape in shapes(1024, count, random.Random(seed)) for tile in tiles_of(shape)]
    return np.array([features(*key) for key in keys]), np.array([cost_model(*key) for key in keys]), keys


@pytest.mark.full
def test_the_forest_learns_what_it_is_shown() -> None:
    known, times, _ = table(16, seed=1)
    unknown, hidden, keys = table(4, seed=2)
    forest = Forest(PROBLEM)
    forest.fit(known, times)
    figures = judge(list(forest.predict(unknown)), list(hidden), keys, dict(zip(keys, hidden, strict=True)))
    assert figures["r_squared"] > 0.9
    assert figures["regret"] < 1.2
    assert figures["gain_over_worst"] > 1.5


def test_the_baseline_of_predictors_scales_the_nearest_shape() -> None:
    known, times, _ = table(6, seed=1)
    baseline = NearestShape(PROBLEM)
    baseline.fit(known, times)
    assert baseline.predict(known[:40]) == pytest.approx(times[:40])


def test_perfect_predictions_have_no_regret_and_constant_ones_explain_nothing() -> None:
    _, times, keys = table(3, seed=5)
    again = dict(zip(keys, times, strict=True))
    perfect = judge(list(times), list(times), keys, again)
    assert perfect["r_squared"] == 1.0
    assert perfect["regret"] == perfect["worst_regret"] == 1.0
    mean = float(np.exp(np.log(times).mean()))
    assert judge([mean] * len(times), list(times), keys, again)["r_squared"] == pytest.approx(0.0, abs=1e-12)
    worst = judge([1 / t for t in times], list(times), keys, again)
    assert worst["gain_over_worst"] == pytest.approx(1.0)


def test_luck_in_the_table_is_no_regret_of_who_did_not_trust_it() -> None:
    """Of a hundred equal tiles the fastest one in the table is merely lucky; the second timing tells."""
    _, _, keys = table(3, seed=5)
    truth = dict.fromkeys(keys, 1e-3)
    lucky = [seconds * random.Random(i).lognormvariate(0, 0.1) for i, seconds in enumerate(truth.values())]
    predicted = [1e-3] * len(keys)
    chosen = finalists(dict(zip(keys, lucky, strict=True)), keys, [predicted])
    figures = judge(predicted, lucky, keys, {key: truth[key] for key in chosen})
    assert figures["regret"] == figures["worst_regret"] == 1.0
    assert judge(predicted, lucky, keys, dict(zip(keys, lucky, strict=True)))["regret"] > 1.1


def test_tiles_that_come_to_the_same_are_one_and_every_tile_is_timed() -> None:
    assert tiles_of((64, 32, 1000)) == sorted(set(tiles_of((64, 32, 1000))))
    assert {tile[:2] for tile in tiles_of((64, 32, 1000))} == {(32, 32), (64, 32)}
    drawn = [(48, 64, 80), (96, 32, 64)]
    products = [(shape, tile) for shape in drawn for tile in tiles_of(shape)]
    times = Bench(drawn, random.Random(0)).times(products, 2)
    assert list(times) == products
    assert min(times.values()) > 0
