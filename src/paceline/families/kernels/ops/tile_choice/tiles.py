"""Tiled matrix products: shapes and tiles, their times, and how good predictions of these are.

Of a hundred tiles that were timed a few times each, the fastest one was also the luckiest; so chosen tiles and the
fastest ones are timed again, in turn, before one is called better than another.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from paceline.worker.timing.interleaved import median

_perf_ns = time.perf_counter_ns

TILES = (32, 64, 128, 256)
LEAST_TILE = 64**3
"""Products of tiles below this take nothing but calls."""
HELD_OUT = 4
"""One shape of so many is held out."""
REPEATS = 5
FINALISTS, FINAL_REPEATS = 8, 15
"""Tiles of a held-out shape that are timed again beside the chosen ones, and how often."""
Shape = tuple[int, int, int]
Product = tuple[Shape, Shape]
"""A shape (m, n, k) and its tile."""
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


def tiles_of(shape: Shape) -> list[Shape]:
    """Return the different tiles of a shape; one that is longer than a side is as long as that side."""
    cut = {
        (min(m, shape[0]), min(n, shape[1]), min(k, shape[2]))
        for m, n, k in itertools.product(TILES, TILES, TILES)
        if m * n * k >= LEAST_TILE
    }
    return sorted(cut)


class Bench:
    """Times products of matrices that are drawn once for each shape."""

    def __init__(self, all_shapes: Sequence[Shape], rng: random.Random) -> None:
        self._rng = rng
        self._matrices = {
            (m, n, k): (torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)) for m, n, k in all_shapes
        }

    def times(self, products: Sequence[Product], repeats: int) -> dict[Product, float]:
        """Return median seconds; rounds are shuffled, so that drift meets all alike."""
        found: dict[Product, list[float]] = {product: [] for product in products}
        order = list(found)
        for _ in range(repeats):
            self._rng.shuffle(order)
            for shape, tile in order:
                start = _perf_ns()
                tiled_product(*self._matrices[shape], tile)
                found[shape, tile].append((_perf_ns() - start) * 1e-9)
        return {product: median(times) for product, times in found.items()}


def finalists(
    table: Mapping[Product, float], unknown: Sequence[Product], predictions: Sequence[Sequence[float]]
) -> list[Product]:
    """Return the products that are timed again: of each held-out shape the fastest ones, and what each would choose."""
    found: dict[Product, None] = {}
    for indices in _by_shape(unknown).values():
        fastest = sorted(indices, key=lambda i: table[unknown[i]])[:FINALISTS]
        chosen = [_first_of_least(indices, predicted) for predicted in predictions]
        found |= dict.fromkeys(unknown[i] for i in (*fastest, *chosen))
    return list(found)


def judge(
    predicted: Sequence[float],
    measured: Sequence[float],
    products: Sequence[Product],
    again: Mapping[Product, float],
) -> dict[str, float]:
    """Return how good predictions of times are: R² of their logarithms, and what choosing by them costs and gains.

    The regret is a shape's time with the predicted tile over its best time, both from the second timing; the gain is
    the worst tile's time over that with the predicted one. Both are medians over the held-out shapes.

    Args:
        predicted: A time for each product.
        measured: Its time in the table.
        products: What was held out.
        again: Times of the chosen and the fastest products, from passes in turn.
    """
    logs = [math.log(t) for t in measured]
    mean = sum(logs) / len(logs)
    residual = sum((math.log(max(p, 1e-12)) - v) ** 2 for p, v in zip(predicted, logs, strict=True))
    regrets, gains = [], []
    for indices in _by_shape(products).values():
        chosen = again[products[_first_of_least(indices, predicted)]]
        regrets.append(chosen / min(again[products[i]] for i in indices if products[i] in again))
        gains.append(max(measured[i] for i in indices) / chosen)
    return {
        "r_squared": 1.0 - residual / sum((v - mean) ** 2 for v in logs),
        "regret": median(regrets),
        "worst_regret": max(regrets),
        "gain_over_worst": median(gains),
    }


def _by_shape(products: Sequence[Product]) -> dict[Shape, list[int]]:
    found: dict[Shape, list[int]] = {}
    for index, (shape, _) in enumerate(products):
        found.setdefault(shape, []).append(index)
    return found


def _first_of_least(indices: Sequence[int], predicted: Sequence[float]) -> int:
    return min(indices, key=lambda i: predicted[i])
