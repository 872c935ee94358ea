"""What the control plane knows about ``toy``; free of torch."""

from __future__ import annotations

from paceline.families.training.ops.toy.metrics import METRICS

from paceline.base.families.operation import Operation
from paceline.families.training.core.planning.legality import estimate_s, problems
from paceline.families.training.core.planning.metrics import DERIVED
from paceline.families.training.core.planning.parameters import (
    ALIKE_RANKS,
    GOAL,
    MODEL,
    ONE_PART,
    RUN,
    TRAINING,
)
from paceline.families.training.core.planning.promises import Training

OPERATION = Operation(
    name="toy",
    summary="the sequences of a step, as toys",
    place=99,
    parameters=(*MODEL, *RUN, *TRAINING, *GOAL),
    metrics=METRICS,
    properties=Training,
    check=problems,
    estimate_s=estimate_s,
    derived=DERIVED,
    fixed={**ONE_PART, **ALIKE_RANKS},
)
