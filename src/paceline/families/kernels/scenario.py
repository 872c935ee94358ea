"""Scenarios of the family: not one timed kernel, but a question asked of many.

``tile_choice``: the time of a tiled matrix product is measured for every shape and every tile. A technique sees the
times of some shapes, predicts those of the others, and is judged by times that it never saw.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.families.kernels.cells import Cell
from paceline.worker.session import Block, Case, CaseError, Session
from paceline.worker.timing import median

_perf_ns = time.perf_counter_ns

TILES = (32, 64, 128, 256, 512)
HELD_OUT = 4
"""One shape of so many is held out."""
REPEATS = 5
FEATURES = ("m", "n", "k", "tile_m", "tile_n", "tile_k", "num_tiles", "steps", "tile_bytes", "flops")


def shapes(largest: int, count: int, rng: random.Random) -> list[tuple[int, int, int]]:
    """Draw matrix shapes (m, n, k) up to a size, alike on a logarithmic scale."""
    low, high = math.log(largest / 8), math.log(largest)

    def side() -> int:
        return max(round(math.exp(rng.uniform(low, high)) / 16), 1) * 16

    return [(side(), side(), side()) for _ in range(count)]


def features(shape: Sequence[int], tile: Sequence[int]) -> list[float]:
    """Return what is known of a product before it runs, in the order of ``FEATURES``."""
    m, n, k = shape
    tile_m, tile_n, tile_k = tile
    num_tiles = -(-m // tile_m) * -(-n // tile_n)
    steps = num_tiles * -(-k // tile_k)
    tile_bytes = 4 * (tile_m * tile_k + tile_k * tile_n + tile_m * tile_n)
    return [*map(float, (*shape, *tile, num_tiles, steps, tile_bytes, 2 * m * n * k))]


def tiled_product(a_MK: Tensor, b_KN: Tensor, c_MN: Tensor, tile: Sequence[int]) -> None:
    """Multiply tile by tile: the kernel whose tile is to be chosen."""
    tile_m, tile_n, tile_k = tile
    (m, k), n = a_MK.shape, b_KN.shape[1]
    for i, j in itertools.product(range(0, m, tile_m), range(0, n, tile_n)):
        part = c_MN[i : i + tile_m, j : j + tile_n]
        torch.mm(a_MK[i : i + tile_m, :tile_k], b_KN[:tile_k, j : j + tile_n], out=part)
        for depth in range(tile_k, k, tile_k):
            part.addmm_(
                a_MK[i : i + tile_m, depth : depth + tile_k], b_KN[depth : depth + tile_k, j : j + tile_n]
            )


def measure_table(
    all_shapes: Sequence[tuple[int, int, int]], rng: random.Random
) -> dict[tuple[tuple[int, int, int], tuple[int, int, int]], float]:
    """Return the median time of every shape with every tile; rounds are shuffled, so that drift meets all alike."""
    tiles = [(m, n, k) for m in TILES for n in TILES for k in TILES if m * n * k >= 64**3]
    keys = [(shape, tile) for shape in all_shapes for tile in tiles]
    matrices = {
        (m, n, k): (torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)) for m, n, k in all_shapes
    }
    found: dict[tuple[tuple[int, int, int], tuple[int, int, int]], list[float]] = {}
    for _ in range(REPEATS):
        rng.shuffle(keys)
        for shape, tile in keys:
            start = _perf_ns()
            tiled_product(*matrices[shape], tile)
            found.setdefault((shape, tile), []).append((_perf_ns() - start) * 1e-9)
    return {key: median(times) for key, times in found.items()}


def judge(
    predicted: Sequence[float],
    measured: Sequence[float],
    keys: Sequence[tuple[tuple[int, int, int], tuple[int, int, int]]],
) -> dict[str, float]:
    """Return how good predictions of times are: R² of their logarithms, and what choosing by them costs and gains.

    The regret is a shape's time with the predicted tile over its best time, the gain its worst time over that with the
    predicted tile; both are medians over the held-out shapes.
    """
    logs = [math.log(t) for t in measured]
    mean = sum(logs) / len(logs)
    residual = sum((math.log(max(p, 1e-12)) - v) ** 2 for p, v in zip(predicted, logs, strict=True))
    by_shape: dict[tuple[int, int, int], list[int]] = {}
    for index, (shape, _) in enumerate(keys):
        by_shape.setdefault(shape, []).append(index)
    regrets, gains = [], []
    for indices in by_shape.values():
        chosen = min(indices, key=lambda i: predicted[i])
        times = [measured[i] for i in indices]
        regrets.append(measured[chosen] / min(times))
        gains.append(max(times) / measured[chosen])
    return {
        "r_squared": 1.0 - residual / sum((v - mean) ** 2 for v in logs),
        "regret": median(regrets),
        "worst_regret": max(regrets),
        "gain_over_worst": median(gains),
    }


def run_tile_choice(
    session: Session, block: Block, cells: dict[str, Cell], cases: Sequence[Case]
) -> list[dict[str, Any]]:
    """Measure the table once and let every technique predict the held-out part of it; return one result a case."""
    rng = random.Random(session.draw_seed("shapes", block.block))
    torch.set_num_threads(int(block.params["threads"]))
    drawn = shapes(int(block.params["largest"]), int(block.params["num_shapes"]), rng)
    session.begin(block, "-", "table")
    table = measure_table(drawn, rng)
    held = set(drawn[::HELD_OUT])
    known = [key for key in table if key[0] not in held]
    unknown = [key for key in table if key[0] in held]
    results = []
    for case in cases:
        session.begin(block, case.label, "predict")
        try:
            results.append(_one(block, cells[case.label], table, known, unknown))
        except CaseError as error:
            results.append(
                {"status": error.status, "reason": error.reason, "detail": error.detail, "metrics": {}}
            )
    return results


def _one(
    block: Block,
    cell: Cell,
    table: dict[tuple[tuple[int, int, int], tuple[int, int, int]], float],
    known: list[tuple[tuple[int, int, int], tuple[int, int, int]]],
    unknown: list[tuple[tuple[int, int, int], tuple[int, int, int]]],
) -> dict[str, Any]:
    timeout_s = 0.8 * float(block.protocol["timeout_s"])
    reply = cell.ask(
        {
            "do": "predict",
            "params": dict(block.params),
            "known": [features(*key) for key in known],
            "times": [table[key] for key in known],
            "unknown": [features(*key) for key in unknown],
        },
        timeout_s=timeout_s,
    )
    predicted = [float(p) for p in reply["predicted"]]
    if len(predicted) != len(unknown) or not all(math.isfinite(p) and p > 0 for p in predicted):
        raise CaseError("incorrect", "predictions are not one positive number for each held-out product")
    figures = judge(predicted, [table[key] for key in unknown], unknown)
    return {
        "status": "ok",
        "metrics": {name: {"samples": [value]} for name, value in figures.items()},
        "correctness": {
            "passed": True,
            "oracle": "times measured in the same launch, unseen by the technique",
        },
        "accounting": {"known": len(known), "held_out": len(unknown), "fit_s": float(reply["elapsed_s"])},
    }
