"""Gossip: what makes a point legal; free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import changed
from paceline.base.families.family import Params
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.parameters import SIZED
from paceline.families.collectives.core.planning.promises import Exactness
from paceline.families.collectives.core.planning.sizes import BANDWIDTHS, element_count, number
from paceline.families.collectives.ops.mix.metrics import METRICS


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    own: list[str] = []
    if str(params["dtype"]).startswith("int"):
        own.append(f"mix averages replicas: it needs a floating dtype, not {params['dtype']}")
    elif element_count(params) < number(params, "ranks"):
        own.append(
            f"size_bytes {params['size_bytes']} holds fewer elements than ranks ({params['ranks']}): "
            "the mixing weights could not be told apart"
        )
    return problems(params, own=own)


OPERATION = CollectiveOperation(
    name="mix",
    summary="Replicas move towards their mean by a doubly stochastic exchange (gossip).",
    place=7,
    parameters=SIZED,
    arguments=(changed("buffer", "size_bytes // item bytes"),),
    metrics=METRICS,
    properties=Exactness,
    check=check,
    estimate_s=estimate_s,
    derived=BANDWIDTHS,
    min_ranks=2,
)
