"""What the control plane knows about ``coded_gradients``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.base.techniques.requirements import DeviceRequirements
from paceline.families.training.ops.coded_gradients.metrics import METRICS
from paceline.families.training.ops.coded_gradients.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    wrong = [
        f"{name} is a probability: it must be at most 1, not {params[name]}"
        for name in ("slow_begin", "slow_end")
        if float(str(params[name])) > 1
    ]
    if float(str(params["slow_begin"])) > 0 and float(str(params["slow_end"])) == 0:
        wrong.append("slow_end must be above 0 where workers become slow: in the end all would be")
    return wrong


def estimate_s(params: Params) -> float:
    """Return rough seconds of a technique in a launch."""
    return 2.0 + 3e-4 * int(str(params["jobs"])) * int(str(params["workers"]))


OPERATION = Operation(
    name="coded_gradients",
    place=10,
    summary="Workers that straggle in bursts compute sums of gradients in virtual time; a master says who does what.",
    interface="api.coding:Master",
    parameters=PARAMETERS,
    metrics=METRICS,
    requirements=DeviceRequirements,
    check=check,
    estimate_s=estimate_s,
    isolated=True,
)
