"""What the control plane knows about ``execute``, free of torch."""

from __future__ import annotations

from paceline.base.families.operation import Operation
from paceline.base.techniques.requirements import DeviceRequirements
from paceline.families.programs.ops.execute.metrics import METRICS
from paceline.families.programs.ops.execute.parameters import PARAMETERS

OPERATION = Operation(
    name="execute",
    summary="A command is run again and again, each time as a new process, in turn with the others.",
    interface="api.program:Programmed",
    parameters=PARAMETERS,
    metrics=METRICS,
    requirements=DeviceRequirements,
    check=lambda params: [],
    estimate_s=lambda params: None,
    needs_torch=False,
)
