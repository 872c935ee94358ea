"""What the control plane knows about ``denoise``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.families.serving.core.planning.promises import GroupRequirements
from paceline.families.serving.core.workloads.drawn import count_of
from paceline.families.serving.ops.denoise.metrics import METRICS
from paceline.families.serving.ops.denoise.parameters import PARAMETERS

IMAGE_STEP_S = 0.005
"""Of an image and step, with all that proves and repeats it."""


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    return []


def estimate_s(params: Params) -> float:
    """Return rough seconds of a technique in a launch."""
    return IMAGE_STEP_S * count_of(params, "images") * count_of(params, "steps")


OPERATION = Operation(
    name="denoise",
    place=7,
    summary="The technique takes the noise out of images on several ranks.",
    interface="api.denoising:Denoiser",
    parameters=PARAMETERS,
    metrics=METRICS,
    requirements=GroupRequirements,
    check=check,
    estimate_s=estimate_s,
)
