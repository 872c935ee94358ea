"""What the control plane knows about ``toy``, free of torch."""

from __future__ import annotations

from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.metrics import CALL
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.parameters import SIZED
from paceline.families.collectives.core.planning.promises import Exactness

OPERATION = CollectiveOperation(
    name="toy",
    summary="Every rank ends with the buffer of the rank before it.",
    place=99,
    parameters=SIZED,
    metrics=CALL,
    properties=Exactness,
    check=problems,
    estimate_s=estimate_s,
    min_ranks=2,
)
