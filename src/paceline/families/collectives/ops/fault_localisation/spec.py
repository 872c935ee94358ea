"""Finding the guilty rank: parameters and metrics; free of torch."""

from __future__ import annotations

from paceline.families.collectives.core.planning.legality import problems, scenario_s
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.ops.fault_localisation.metrics import METRICS
from paceline.families.collectives.ops.fault_localisation.parameters import PARAMETERS
from paceline.families.collectives.ops.fault_localisation.promises import Detection

OPERATION = CollectiveOperation(
    name="fault_localisation",
    summary="Training-like steps with one injected fault; who detects it, when, and whom it blames.",
    interface="api.traces:Detector",
    place=14,
    parameters=PARAMETERS,
    metrics=METRICS,
    properties=Detection,
    check=problems,
    estimate_s=scenario_s,
    renews=False,
    min_ranks=2,
)
