"""All-reduce: its parameters, metrics and bandwidths; free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import changed
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.promises import Losses
from paceline.families.collectives.core.planning.sizes import BANDWIDTHS
from paceline.families.collectives.ops.all_reduce.metrics import METRICS
from paceline.families.collectives.ops.all_reduce.parameters import PARAMETERS

OPERATION = CollectiveOperation(
    name="all_reduce",
    summary="Every rank ends with the sum over ranks.",
    place=0,
    parameters=PARAMETERS,
    arguments=(changed("buffer", "size_bytes // item bytes"),),
    metrics=METRICS,
    properties=Losses,
    check=problems,
    estimate_s=estimate_s,
    derived=BANDWIDTHS,
    bus_factor=lambda n: 2 * (n - 1) / n,
    same_everywhere=True,
)
