"""Broadcast: its parameters, metrics and bandwidths; free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import changed
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.metrics import LOSSY_CALL
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.parameters import ROOT_RANK, SIZED
from paceline.families.collectives.core.planning.promises import Losses
from paceline.families.collectives.core.planning.sizes import BANDWIDTHS

OPERATION = CollectiveOperation(
    name="broadcast",
    summary="Every rank ends with the root's buffer.",
    place=4,
    parameters=(*SIZED, ROOT_RANK),
    arguments=(changed("buffer", "size_bytes // item bytes"),),
    metrics=LOSSY_CALL,
    properties=Losses,
    check=problems,
    estimate_s=estimate_s,
    derived=BANDWIDTHS,
    bus_factor=lambda n: 1.0,
    same_everywhere=True,
)
