"""What a deployment gets, and how many calls whole devices would carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.families.serving.api.deploying import Given, OnePerDevice
from paceline.families.serving.api.layers import Shape
from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.model_sizes import model_of
from paceline.families.serving.core.simulation.cluster import Cluster, Link
from paceline.families.serving.core.simulation.costs import Costs
from paceline.families.serving.core.simulation.sessions import at_start


def given_of(params: Mapping[str, Any], costs: Costs) -> Given:
    """Return what a deployment gets; a further copy of the weights takes as many blocks as its bytes fill."""
    shape = Shape.of(model_of(params, 0))
    itemsize = 2 if params["dtype"] == "bfloat16" else 4
    weights = num_weights(shape) * itemsize
    size = int(params["block_size"])
    return Given(
        devices=int(params["devices"]),
        blocks_per_device=int(params["num_blocks"]),
        weight_blocks=-(-weights // (costs.kv_bytes_per_token * size)),
        block_size=size,
        max_batch=int(params["max_batch"]),
        token_budget=int(params["token_budget"]),
    )


def num_weights(shape: Shape) -> int:
    """Return how many weights a model has."""
    kv = shape.kv_heads * shape.head_dim
    layer = 2 * shape.hidden + 2 * shape.hidden**2 + 2 * kv * shape.hidden + 3 * shape.inner * shape.hidden
    return shape.layers * layer + shape.hidden + 2 * shape.vocab * shape.hidden


def capacity_per_s(calls: Sequence[Call], given: Given, costs: Costs) -> float:
    """Return calls a second that whole devices serve when all calls are there at the start."""
    log = Cluster(OnePerDevice(), given, costs, Link(bytes_per_s=1e9)).play([at_start(c) for c in calls])
    return len(calls) / max(t.at_s for t in log.tokens)
