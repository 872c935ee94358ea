"""What the control plane knows about ``toy``, free of torch."""

from __future__ import annotations

from paceline.families.collectives.core.legality import estimate_s, problems
from paceline.families.collectives.core.metrics import CALL
from paceline.families.collectives.core.operation import CollectiveOperation
from paceline.families.collectives.core.parameters import SIZED
from paceline.families.collectives.core.promises import Exactness

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
