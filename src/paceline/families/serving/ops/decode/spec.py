"""What the control plane knows about ``decode``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.base.techniques.requirements import DeviceRequirements
from paceline.families.serving.core.workloads.drawn import count_of
from paceline.families.serving.ops.decode.metrics import METRICS
from paceline.families.serving.ops.decode.parameters import PARAMETERS

MOST_TOKENS = 1_000_000
"""That a launch decodes."""


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    wrong: list[str] = []
    if float(str(params["acceptance"])) > 1.0:
        wrong.append("acceptance is a probability")
    if not float(str(params["target_latency"])) > 0.0:
        wrong.append("target_latency is a time above zero")
    if count_of(params, "requests") * count_of(params, "output_tokens") > MOST_TOKENS:
        wrong.append(f"more than {MOST_TOKENS} tokens would be decoded in a launch")
    return wrong


def estimate_s(params: Params) -> float:
    """Return rough seconds of a technique in a launch."""
    return 2.5


OPERATION = Operation(
    name="decode",
    place=3,
    summary="The technique decodes answers with a draft model beside copies of the target, in virtual time.",
    interface="api.speculating:Decoder",
    parameters=PARAMETERS,
    metrics=METRICS,
    requirements=DeviceRequirements,
    check=check,
    estimate_s=estimate_s,
    isolated=True,
)
