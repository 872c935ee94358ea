"""Reduce: its parameters, metrics and bandwidths; free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import changed
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.metrics import CALL
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.parameters import ROOT_RANK, SIZED
from paceline.families.collectives.core.planning.promises import Exactness
from paceline.families.collectives.core.planning.sizes import BANDWIDTHS

OPERATION = CollectiveOperation(
    name="reduce",
    summary="The root ends with the sum over ranks.",
    place=5,
    parameters=(*SIZED, ROOT_RANK),
    arguments=(changed("buffer", "size_bytes // item bytes", doc="only the root's counts afterwards"),),
    metrics=CALL,
    properties=Exactness,
    check=problems,
    estimate_s=estimate_s,
    derived=BANDWIDTHS,
    bus_factor=lambda n: 1.0,
)
