"""How long ETS's integer programme takes on drawn trees of 256 nodes: ``python benchmarks/ets_programme.py``."""

from __future__ import annotations

import random
import time

from paceline.baselines.reasoning.ets import chosen

NUM_NODES, NUM_TREES, WIDTH = 256, 100, 64


def drawn(rng: random.Random) -> tuple[list[float], list[list[int]], list[int]]:
    """Return weights, paths and clusters of the leaves of a tree whose every round has at most ``WIDTH`` nodes."""
    parents = [-1] * 16
    begin = 0
    while len(parents) < NUM_NODES:
        level = range(begin, len(parents))
        begin = len(parents)
        parents += [rng.choice(level) for _ in range(min(WIDTH, NUM_NODES - begin))]
    paths = []
    for leaf in range(begin, len(parents)):
        path, node = [], leaf
        while node >= 0:
            path.append(node)
            node = parents[node]
        paths.append(path)
    return [rng.random() for _ in paths], paths, [rng.randrange(8) for _ in paths]


def main() -> None:
    """Print the median and the longest of the trees' times."""
    rng, spent = random.Random(1), []
    chosen(*drawn(rng), cache=1.0, coverage=1.0)
    for _ in range(NUM_TREES):
        weights, paths, clusters = drawn(rng)
        begin = time.perf_counter()
        chosen(weights, paths, clusters, cache=1.0, coverage=1.0)
        spent.append(time.perf_counter() - begin)
    spent.sort()
    print(
        f"{NUM_TREES} trees of {NUM_NODES} nodes: median {spent[NUM_TREES // 2] * 1e3:.1f} ms, "
        f"longest {spent[-1] * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    main()
