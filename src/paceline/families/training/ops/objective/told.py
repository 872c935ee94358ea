"""What nodes are told before they start, made of a drawn problem and a point. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from paceline.families.training.api.objective import Given
from paceline.families.training.core.planning.graphs import STAR, constants, mixing, neighbours
from paceline.families.training.ops.objective.problems import Problem


def first_with_data(params: Mapping[str, Any]) -> int:
    """Return the first node that has data: 1 behind a server, else 0."""
    return int(params["graph"] == STAR)


def num_nodes(params: Mapping[str, Any]) -> int:
    """Return how many nodes there are, a server included."""
    return int(params["nodes"]) + first_with_data(params)


def leaving(params: Mapping[str, Any], seed: int) -> dict[int, float]:
    """Return when each of some nodes stops for ever: a drawn share of those with data, at half of the run."""
    first, count = first_with_data(params), int(params["nodes"])
    rng = np.random.default_rng([seed, 77])
    gone = rng.permutation(count)[: int(float(params["leaving_share"]) * count)]
    return {int(n) + first: float(params["horizon"]) / 2 for n in gone}


def given_of(problem: Problem, params: Mapping[str, Any], seed: int) -> list[Given]:
    """Return what each node is told.

    Args:
        problem: What is optimised; its data are not told.
        params: Of the point.
        seed: Of coins.
    """
    first, count = first_with_data(params), num_nodes(params)
    graph = str(params["graph"])
    around = neighbours(graph, count)
    weights = None if first else mixing(graph, count)
    facts = {**problem.facts, **({} if first else constants(graph, count))}
    if params["byzantine"]:
        facts["byzantine"] = float(params["byzantine"])
    return [
        Given(
            me=me,
            num_nodes=count,
            dim=problem.dim,
            start=np.zeros(problem.dim),
            smoothness=problem.smoothness,
            convexity=problem.convexity,
            weights={n + first: 1.0 / problem.count for n in range(problem.count)},
            samples=problem.samples,
            neighbours=around[me],
            mixing={} if weights is None else {m: float(weights[me, m]) for m in (me, *around[me])},
            shared_seed=seed,
            own_seed=int(np.random.default_rng([seed, me]).integers(2**31)),
            horizon_s=float(params["horizon"]),
            epsilon=float(params["privacy_epsilon"]),
            delta=float(params["privacy_delta"]),
            facts=dict(facts),
        )
        for me in range(count)
    ]
