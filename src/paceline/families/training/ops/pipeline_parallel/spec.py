"""Pipelines: what makes a point legal; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.families.training.core.planning.legality import estimate_s, number, problems
from paceline.families.training.core.planning.metrics import DERIVED
from paceline.families.training.core.planning.parameters import ALIKE_RANKS
from paceline.families.training.core.planning.promises import Training
from paceline.families.training.ops.pipeline_parallel.metrics import METRICS
from paceline.families.training.ops.pipeline_parallel.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    batch, parts = number(params, "batch"), number(params, "microbatches")
    own = [f"batch {batch} cannot be split into {parts} microbatches"] if batch % parts else []
    return own + problems(params, whole_batch=True)


OPERATION = Operation(
    name="pipeline_parallel",
    summary="Ranks hold different layers of one model, and a step's sequences go through them in parts.",
    interface="api.pipeline.executor:PipelineReplica",
    place=1,
    parameters=PARAMETERS,
    metrics=METRICS,
    properties=Training,
    check=check,
    estimate_s=estimate_s,
    derived=DERIVED,
    fixed=ALIKE_RANKS,
)
