"""What the control plane knows about ``toy``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.base.families.operation import Operation
from paceline.families.serving.core.planning.parameters import REQUESTS

STEPS = Metric(
    name="toy_steps",
    unit="steps",
    better="lower",
    doc="Steps in which all calls were served.",
    contract={"counted": "steps that the technique planned"},
)

OPERATION = Operation(
    name="toy",
    place=99,
    summary="Calls are dealt out to steps.",
    parameters=(REQUESTS,),
    metrics=(STEPS,),
    check=lambda params: [],
    estimate_s=lambda params: 0.1,
)
