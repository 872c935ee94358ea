"""Reduce-scatter: its parameters, metrics and bandwidths; free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.metrics import GROUPED_CALL
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.parameters import GROUP_RANKS, SIZED
from paceline.families.collectives.core.planning.promises import Exactness
from paceline.families.collectives.core.planning.sizes import BANDWIDTHS

OPERATION = CollectiveOperation(
    name="reduce_scatter",
    summary="Every rank ends with its share of the sum over ranks.",
    place=2,
    parameters=(*SIZED, GROUP_RANKS),
    arguments=(
        given("send", "size_bytes // item bytes"),
        filled("receive", "size_bytes // item bytes // ranks"),
    ),
    metrics=GROUPED_CALL,
    properties=Exactness,
    check=problems,
    estimate_s=estimate_s,
    derived=BANDWIDTHS,
    sharded=True,
    bus_factor=lambda n: (n - 1) / n,
)
