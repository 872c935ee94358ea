"""All-gather: its parameters, metrics and bandwidths; free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.metrics import GROUPED_LOSSY_CALL
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.parameters import GROUP_RANKS, SIZED
from paceline.families.collectives.core.planning.promises import Losses
from paceline.families.collectives.core.planning.sizes import BANDWIDTHS

OPERATION = CollectiveOperation(
    name="all_gather",
    summary="Every rank ends with the concatenation of all ranks' shares.",
    place=1,
    parameters=(*SIZED, GROUP_RANKS),
    arguments=(
        given("send", "size_bytes // item bytes // ranks"),
        filled("receive", "size_bytes // item bytes"),
    ),
    metrics=GROUPED_LOSSY_CALL,
    properties=Losses,
    check=problems,
    estimate_s=estimate_s,
    derived=BANDWIDTHS,
    sharded=True,
    bus_factor=lambda n: (n - 1) / n,
    same_everywhere=True,
)
