"""All-to-all: its parameters, metrics and bandwidths; free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.metrics import CALL
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.parameters import SIZED
from paceline.families.collectives.core.planning.promises import Exactness
from paceline.families.collectives.core.planning.sizes import BANDWIDTHS

OPERATION = CollectiveOperation(
    name="all_to_all",
    summary="The i-th share of rank r goes to rank i.",
    place=3,
    parameters=SIZED,
    arguments=(
        given("send", "size_bytes // item bytes"),
        filled("receive", "size_bytes // item bytes"),
    ),
    metrics=CALL,
    properties=Exactness,
    check=problems,
    estimate_s=estimate_s,
    derived=BANDWIDTHS,
    sharded=True,
    bus_factor=lambda n: (n - 1) / n,
)
