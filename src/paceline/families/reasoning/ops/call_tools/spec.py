"""What the control plane knows about ``call_tools``, free of torch."""

from __future__ import annotations

from paceline.base.counting import number_of
from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.base.techniques.requirements import DeviceRequirements
from paceline.families.reasoning.ops.call_tools.metrics import METRICS
from paceline.families.reasoning.ops.call_tools.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    calls, depth = int(str(params["calls"])), int(str(params["depth"]))
    return [f"{number_of(calls, 'call')} cannot have {number_of(depth, 'layer')}"] if calls < depth else []


def estimate_s(params: Params) -> float:
    """Return rough seconds of a technique in a launch: one call after another."""
    each = float(str(params["tool_s"])) + float(str(params["thought_s"])) + float(str(params["step_s"]))
    return int(str(params["questions"])) * int(str(params["calls"])) * each


OPERATION = Operation(
    name="call_tools",
    place=1,
    summary="Questions take calls of tools that depend on each other, planned by a scripted language model.",
    interface="api.tool_calls:ToolMethod",
    parameters=PARAMETERS,
    metrics=METRICS,
    requirements=DeviceRequirements,
    check=check,
    estimate_s=estimate_s,
)
