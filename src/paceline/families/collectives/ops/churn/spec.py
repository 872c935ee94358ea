"""All-reduces in a changing group: parameters and metrics; free of torch."""

from __future__ import annotations

from paceline.families.collectives.core.planning.legality import problems, scenario_s
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.parameters import SIZED, STEPS
from paceline.families.collectives.ops.churn.metrics import METRICS

OPERATION = CollectiveOperation(
    name="churn",
    summary="A sequence of all-reduces during which a peer is killed and another joins.",
    interface="api.elastic:Elastic",
    place=13,
    parameters=(*SIZED, STEPS),
    metrics=METRICS,
    check=problems,
    estimate_s=scenario_s,
    renews=False,
    min_ranks=3,
)
