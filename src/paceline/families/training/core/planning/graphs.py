"""Who may send to whom, and with which weights neighbours average. Free of torch."""

from __future__ import annotations

import math

import numpy as np

from paceline.families.training.api.objective import Array

STAR, RING, COMPLETE, REGULAR, LINE, GRID = "star", "ring", "complete", "four-regular", "line", "grid"
GRAPHS = (STAR, RING, COMPLETE, REGULAR, LINE, GRID)


def neighbours(kind: str, count: int) -> list[tuple[int, ...]]:
    """Return the neighbours of every node.

    Args:
        kind: Of ``GRAPHS``; a star has its server at 0.
        count: Nodes, a server included.
    """
    if kind == STAR:
        return [tuple(range(1, count)), *[(0,)] * (count - 1)]
    if kind == COMPLETE:
        return [tuple(m for m in range(count) if m != n) for n in range(count)]
    if kind in (LINE, GRID):
        return _lattice(count, columns=count if kind == LINE else math.isqrt(count))
    # a circulant graph: two hops of different lengths on either side
    hops = (1,) if kind == RING else (1, max(2, count // 4))
    found = [{(n + s * h) % count for h in hops for s in (1, -1)} - {n} for n in range(count)]
    return [tuple(sorted(f)) for f in found]


def _lattice(count: int, *, columns: int) -> list[tuple[int, ...]]:
    """Return neighbours in rows of a length; the last row may be shorter."""
    found: list[set[int]] = [set() for _ in range(count)]
    for n in range(count):
        beside, below = n + 1, n + columns
        for m in ([beside] if beside % columns else []) + [below]:
            if m < count:
                found[n].add(m)
                found[m].add(n)
    return [tuple(sorted(f)) for f in found]


def constants(kind: str, count: int) -> dict[str, float]:
    """Return what the Laplacian of a graph without a server says about gossip.

    ``edges``: how many there are. ``laplacian_gap``: its least positive eigenvalue. ``laplacian_top``: its largest.
    ``edge_resistance``: the largest resistance between the ends of an edge, where each edge is a resistor of one ohm.

    Args:
        kind: Of ``GRAPHS``, but for a star.
        count: Nodes.
    """
    around = neighbours(kind, count)
    laplacian = np.diag([float(len(others)) for others in around])
    for n, others in enumerate(around):
        laplacian[n, list(others)] = -1.0
    eigenvalues = np.linalg.eigvalsh(laplacian)
    inverse = np.linalg.pinv(laplacian, hermitian=True)
    ends = [(n, m) for n, others in enumerate(around) for m in others if n < m]
    return {
        "edges": float(len(ends)),
        "laplacian_gap": float(eigenvalues[1]),
        "laplacian_top": float(eigenvalues[-1]),
        "edge_resistance": max(float(inverse[n, n] + inverse[m, m] - 2 * inverse[n, m]) for n, m in ends),
    }


def mixing(kind: str, count: int) -> Array:
    """Return Metropolis weights, [count, count]: symmetric, and every row sums to one."""
    around = neighbours(kind, count)
    matrix = np.zeros((count, count))
    for n, others in enumerate(around):
        for m in others:
            matrix[n, m] = 1.0 / (1 + max(len(others), len(around[m])))
        matrix[n, n] = 1.0 - matrix[n].sum()
    return matrix
