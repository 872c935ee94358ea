"""What the control plane knows about ``cache``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.base.techniques.requirements import DeviceRequirements
from paceline.families.serving.ops.cache.metrics import METRICS
from paceline.families.serving.ops.cache.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    return [] if params["bits"] in (2, 3, 4, 8) else ["bits are 2, 3, 4 or 8"]


def estimate_s(params: Params) -> float:
    """Return rough seconds of a technique in a launch."""
    return 10.0


OPERATION = Operation(
    name="cache",
    place=4,
    summary="The technique says what a trained model keeps of the tokens before, and makes keys and values of it.",
    interface="api.caching:Cache",
    parameters=PARAMETERS,
    metrics=METRICS,
    requirements=DeviceRequirements,
    check=check,
    estimate_s=estimate_s,
    isolated=True,
    borrows="reasoning",
)
